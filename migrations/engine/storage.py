"""Storage: the files of steps, below a path or in an object store: who makes, reads or deletes one does it here.

    /shared/ferryman                                   a path that all have
    s3://bucket/ferryman?region=eu-central-1           also ?endpoint_override=host:9000&scheme=http
    gs://bucket/ferryman, abfs://container@account.dfs.core.windows.net/ferryman, hdfs://host:8020/ferryman

URLs by ``pyarrow.fs``, whose documentation has the parameters of each. A name, of a folder or a file, is a text: it travels to
executors and stands in summaries, so it holds no password; credentials are those that each machine finds for itself. No rename is
relied on, as object stores have none: every file has a name that nobody else gives, and counts when the summary of a step names
it, or, of a snapshot, when an empty file beside it says that all is there. Errors are OSErrors (``failures.work_errors``).
Called by the steps and the engines. tests/migrations/test_storage.py.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit
from uuid import uuid4

from ...schema.errors import UsageError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.fs import FileSystem

T = TypeVar("T")

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs")
S3_OPTIONS = {"region", "endpoint_override", "scheme"}
SECRETS = ("secret", "password", "token", "key", "credential")
"""No parameter has one of these in its name."""
ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables of the environment that name a server of S3's protocol, as Amazon's own tools take them. Arrow looks at them too, but
only where it is given a URL alone."""
ATTEMPTS, CONNECT_SECONDS, REQUEST_SECONDS = 8, 10.0, 60.0
"""How long a request to S3 may take, and how often it is made. Arrow gives up after three attempts of three seconds."""
GS_SECONDS = "60"
"""For how long a request to Google's storage is tried again: its own client tries for a quarter of an hour."""
BUFFER_BYTES = 1 << 20
"""What is written or read in order at once, at least."""
TOGETHER = 8
"""How many files of an object store are asked for at the same time: each answer takes some ten milliseconds."""


def is_url(name: str) -> bool:
    """Whether it is in an object store."""
    return "://" in name


def check_url(url: str) -> None:
    """Raises UsageError, with no password in it, for a URL that can be no work folder."""
    scheme, parts = url.partition("://")[0], urlsplit(url)
    if scheme not in SCHEMES:
        raise UsageError(f"a work folder can't be at {scheme}://; give a path, or one of {', '.join(SCHEMES)}://")
    names = {name for name, _ in parse_qsl(parts.query, keep_blank_values=True)}
    user = parts.netloc.rpartition("@")[0]
    if ":" in user or (user and scheme in ("s3", "gs")) or any(word in name.lower() for word in SECRETS for name in names):
        raise UsageError(
            f"the URL of a work folder holds no password or key, as it travels to executors: leave them out of this {scheme}://, "
            "and let each machine find them in its environment, or by its role (docs/spark.md)"
        )
    if not parts.netloc:
        what = "host" if scheme == "hdfs" else "bucket"
        raise UsageError(f"{scheme}:// names no {what}; write {scheme}://{what}/folder")
    if scheme == "s3" and not names <= S3_OPTIONS:
        raise UsageError(f"s3:// has no parameter {min(names - S3_OPTIONS)!r}; there are: {', '.join(sorted(S3_OPTIONS))}")


def join(folder: str, *names: str) -> str:
    """What is called so in a folder."""
    if not is_url(folder):
        return os.path.join(folder, *names)
    path, mark, query = folder.partition("?")
    return "/".join((path.rstrip("/"), *names)) + mark + query


def base_name(name: str) -> str:
    """The last part of a name."""
    return os.path.basename(name.partition("?")[0] if is_url(name) else name)


def new_name(folder: str, ending: str = ".arrow") -> str:
    """The name of a file in a folder that nobody else gives."""
    return join(folder, f"{uuid4()}{ending}")


def make_folder(name: str) -> None:
    """Makes a new folder. In an object store there is nothing to make: one exists as soon as it has a file."""
    if not is_url(name):
        os.makedirs(name)


def create(name: str) -> pa.NativeFile:
    """A new file to write to. In an object store it is there when it has been closed."""
    if not is_url(name):
        import pyarrow as pa

        return pa.output_stream(name, buffer_size=BUFFER_BYTES)
    files, path = _located(name)
    return files.open_output_stream(path, compression=None, buffer_size=BUFFER_BYTES)


def open_file(name: str) -> pa.NativeFile:
    """A file to read from and to seek in."""
    if not is_url(name):
        import pyarrow as pa

        return pa.OSFile(name)
    files, path = _located(name)
    return files.open_input_file(path)


def open_stream(name: str) -> pa.NativeFile:
    """A file to read from one end to the other."""
    if not is_url(name):
        import pyarrow as pa

        return pa.memory_map(name)
    files, path = _located(name)
    return files.open_input_stream(path, compression=None, buffer_size=BUFFER_BYTES)


def write(name: str, content: bytes) -> None:
    """A file with this content."""
    if not is_url(name):
        Path(name).write_bytes(content)
        return
    with create(name) as file:
        file.write(content)


def read(name: str) -> bytes:
    """What a file holds."""
    if not is_url(name):
        return Path(name).read_bytes()
    with open_file(name) as file:
        content: bytes = file.read()
        return content


def exists(name: str) -> bool:
    """Whether there is such a file."""
    if not is_url(name):
        return os.path.isfile(name)
    from pyarrow.fs import FileType

    files, path = _located(name)
    return bool(files.get_file_info(path).type == FileType.File)


def delete(name: str) -> None:
    """Deletes a file, if it is there."""
    if not is_url(name):
        Path(name).unlink(missing_ok=True)
    elif exists(name):
        files, path = _located(name)
        files.delete_file(path)


def delete_folder(name: str) -> None:
    """Deletes a folder with all that is in it."""
    if not is_url(name):
        shutil.rmtree(name)
        return
    files, path = _located(name)
    files.delete_dir(path)


def delete_leftovers(name: str) -> None:
    """Deletes what can be deleted of a folder. Raises nothing."""
    if not is_url(name):
        shutil.rmtree(name, ignore_errors=True)
        return
    with suppress(OSError):
        delete_folder(name)


def side_by_side(get: Callable[[str], T], names: Iterable[str]) -> Iterator[T]:
    """What ``get`` gives for each, in their order; of TOGETHER of them at the same time, which are in memory."""
    rest = iter(names)
    with ThreadPoolExecutor(TOGETHER) as pool:
        asked: deque[Future[T]] = deque(pool.submit(get, name) for name in islice(rest, TOGETHER))
        try:
            while asked:
                found = asked.popleft().result()
                asked.extend(pool.submit(get, name) for name in islice(rest, 1))
                yield found
        finally:
            for each in asked:
                each.cancel()


def _located(name: str) -> tuple[FileSystem, str]:
    """The file system of a URL, and the path there."""
    location, _, query = name.partition("?")
    scheme, _, rest = location.partition("://")
    host, _, path = rest.partition("/")
    # A process that was forked has none of the threads that the file systems of the one that forked it need.
    files, base = _opened(scheme, host, query, os.getpid())
    return files, "/".join((base.rstrip("/"), path))


@cache
def _opened(scheme: str, host: str, query: str, _process: int) -> tuple[FileSystem, str]:
    """The file system, and the path of its root. Raises UsageError."""
    options = {key: values[-1] for key, values in parse_qs(query).items()}
    try:
        from pyarrow import fs

        if scheme == "s3":
            return _s3(host, options), host
        if scheme == "gs":
            options = {"retry_limit_seconds": GS_SECONDS, **options}
        files, base = fs.FileSystem.from_uri(f"{scheme}://{host}/?{urlencode(options)}")
    except ImportError as error:
        raise UsageError(
            f"a work folder at {scheme}:// needs a pyarrow that has it: pip install 'ferryman[spark]' ({error})"
        ) from None
    except (ValueError, OSError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"{scheme}://{host} can't hold a work folder: {reason}") from None
    return files, base


def _s3(bucket: str, options: dict[str, str]) -> Any:
    from pyarrow import fs

    endpoint = options.get("endpoint_override")
    scheme = options.get("scheme")
    url = next(filter(None, map(os.environ.get, ENDPOINTS)), None)
    if endpoint is None and url is not None:
        scheme, _, endpoint = url.rstrip("/").rpartition("://")
        if scheme not in ("http", "https"):
            raise ValueError(f"the endpoint {url!r} in the environment is no http:// or https://")
    region = options.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if region is None:
        region = "us-east-1" if endpoint else fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        region=region,
        endpoint_override=endpoint,
        scheme=scheme or "https",
        connect_timeout=CONNECT_SECONDS,
        request_timeout=REQUEST_SECONDS,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
    )

"""Work folder: where processes that share nothing else leave files for one another: a path, or a folder of an object store.

    /shared/ferryman                                a path that all have
    s3://bucket/ferryman?region=eu-central-1        also s3://KEY:SECRET@bucket/…?endpoint_override=host:9000&scheme=http
    gs://bucket/ferryman, abfs://…, abfss://…, hdfs://…

By ``pyarrow.fs``, whose documentation has the parameters of each. No rename is relied on, as object stores have none: a file is
written once, whole or not at all, under a name that nobody else gives. What is written is collected on the local disk first: a
stream to an object store that breaks off may leave a shorter object. Passwords are never shown. Made from a text, as which it
travels. Called by no engine yet: their work folders are paths.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit
from uuid import uuid4

from attrs import field, frozen
from pyarrow import fs

from ..schema.errors import ServerError, UsageError

SCHEMES = ("s3", "gs", "abfs", "abfss", "hdfs")
SECRETS = ("secret", "password", "token", "key", "credential")
"""A parameter with one of these in its name is not shown."""
IN_MEMORY = 8 << 20
"""What is written stays in memory up to so many bytes."""
CHUNK = 1 << 20


@frozen(slots=False)
class WorkFolder:
    """A folder. Its text holds passwords, if there are any; ``display`` is for people."""

    url: str = field(repr=False)
    names: tuple[str, ...] = ()
    """The way from there."""

    @classmethod
    def parse(cls, text: str) -> WorkFolder:
        """The folder that a user names. Raises UsageError."""
        scheme, has_scheme, _ = text.partition("://")
        if not has_scheme:
            if not text:
                raise UsageError("the work folder is empty; give a path, or a URL of an object store")
            return cls(str(Path(text).absolute()))
        if scheme not in SCHEMES:
            raise UsageError(f"a work folder can't be at {scheme}://; give a path, or one of {', '.join(SCHEMES)}://")
        if scheme != "hdfs" and not urlsplit(text).netloc:
            raise UsageError(f"{scheme}:// names no bucket; write {scheme}://bucket/folder")
        return cls(text)

    def __str__(self) -> str:
        return self.display

    @property
    def is_local(self) -> bool:
        """Whether it is a path."""
        return "://" not in self.url

    @property
    def display(self) -> str:
        """The text for people, without passwords."""
        if self.is_local:
            return str(Path(self.url, *self.names))
        parts = urlsplit(self.url)
        user, at, host = parts.netloc.rpartition("@")
        netloc = f"{user.partition(':')[0]}:***@{host}" if at and ":" in user else parts.netloc
        shown = [(name, "***" if _is_secret(name) else value) for name, value in parse_qsl(parts.query, keep_blank_values=True)]
        path = "/".join([parts.path.rstrip("/"), *self.names])
        return urlunsplit((parts.scheme, netloc, path, urlencode(shown, safe="*:/"), ""))

    def child(self, name: str) -> WorkFolder:
        """A folder in it. There is nothing to make: it exists as soon as it has a file."""
        return type(self)(self.url, (*self.names, _checked(name)))

    def write(self, name: str, content: bytes) -> None:
        """A file with this content. Raises ServerError."""
        with self.writing(name) as file:
            file.write(content)

    @contextlib.contextmanager
    def writing(self, name: str) -> Iterator[IO[bytes]]:
        """A file to write to, which is there when the block has ended, and is not if the block raises. Raises ServerError."""
        path = self._path(name)
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as spool:
            yield spool
            size = spool.tell()
            spool.seek(0)
            with self._errors(f"{name} can't be written"):
                if self.is_local:
                    _write_local(Path(path), spool)
                    return
                with self._files.open_output_stream(path) as stream:
                    shutil.copyfileobj(spool, stream, CHUNK)
                if self._files.get_file_info(path).size != size:
                    self._files.delete_file(path)
                    raise OSError("it has another size than what was written")

    def read(self, name: str) -> bytes:
        """What a file holds. Raises ServerError, also where there is none."""
        with self.reading(name) as file:
            content: bytes = file.read()
            return content

    @contextlib.contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """A file to read from and to seek in, as Arrow's readers take it. OSErrors in the block are ServerErrors."""
        with self._errors(f"{name} can't be read"), self._files.open_input_file(self._path(name)) as file:
            yield file

    def exists(self, name: str) -> bool:
        """Whether there is such a file. Raises ServerError."""
        with self._errors(f"{name} can't be looked for"):
            return bool(self._files.get_file_info(self._path(name)).type == fs.FileType.File)

    def files(self) -> list[str]:
        """The names of the files in it, not of those in folders in it, in their order. Raises ServerError."""
        with self._errors("it can't be listed"):
            found = self._files.get_file_info(fs.FileSelector(self._base, allow_not_found=True))
            return sorted(each.base_name for each in found if each.type == fs.FileType.File)

    def delete(self, name: str) -> None:
        """Deletes a file, if it is there. Raises ServerError."""
        with self._errors(f"{name} can't be deleted"):
            path = self._path(name)
            if self._files.get_file_info(path).type != fs.FileType.NotFound:
                self._files.delete_file(path)

    def clear(self) -> None:
        """Deletes all that is in it, and in folders in it. Raises ServerError."""
        with self._errors("it can't be cleared"):
            self._files.delete_dir_contents(self._base, missing_dir_ok=True)

    def check(self) -> None:
        """Writes, reads and deletes a file. Raises ServerError that says which of these can't be done."""
        name, content = f"check-{uuid4().hex}", os.urandom(16)
        self.write(name, content)
        if self.read(name) != content:
            raise ServerError(f"{self.display}: what was written is not what is read; give a work folder of its own")
        self.delete(name)

    @cached_property
    def _opened(self) -> tuple[fs.FileSystem, str]:
        if self.is_local:
            return fs.LocalFileSystem(), self.url
        try:
            files, path = fs.FileSystem.from_uri(self.url)
        except (ValueError, OSError, NotImplementedError) as error:
            raise UsageError(f"{self.display}: can't be a work folder: {self._hidden(str(error))}") from None
        return files, path

    @property
    def _files(self) -> fs.FileSystem:
        return self._opened[0]

    @property
    def _base(self) -> str:
        return "/".join([self._opened[1].rstrip("/"), *self.names])

    def _path(self, name: str) -> str:
        return f"{self._base}/{_checked(name)}"

    @contextlib.contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ServerError(f"{self.display}: {what}: {self._hidden(str(error))}") from None

    def _hidden(self, text: str) -> str:
        """A text of somebody else's without the passwords of this folder."""
        parts = urlsplit(self.url)
        secrets = {parts.password, *(value for name, value in parse_qsl(parts.query) if _is_secret(name))}
        for secret in filter(None, secrets):
            for form in (secret, quote(secret, safe="")):
                text = text.replace(form, "***")
        return text

    def __getstate__(self) -> tuple[str, tuple[str, ...]]:
        return self.url, self.names

    def __setstate__(self, state: tuple[str, tuple[str, ...]]) -> None:
        object.__setattr__(self, "url", state[0])
        object.__setattr__(self, "names", state[1])


def _write_local(path: Path, content: IO[bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        with draft.open("xb") as file:
            shutil.copyfileobj(content, file, CHUNK)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in SECRETS)


def _checked(name: str) -> str:
    if not name or "/" in name or name in (".", "..") or name.startswith("."):
        raise UsageError(f"{name!r} can't be the name of a file in a work folder")
    return name

"""Storage: paths and object stores behave alike, an object is there when it is whole, and no password is taken."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from ferryman.cli.engines import get_engine
from ferryman.migrations.engine import shuffle, storage
from ferryman.migrations.engine.failures import work_errors
from ferryman.migrations.engine.resume import find_snapshot, keep_on_error, work_folder
from ferryman.schema.errors import ServerError, UsageError
from pyarrow import parquet

from ..support.object_store import ObjectStore, object_store
from ..support.servers import free_port


@pytest.fixture(scope="module")
def running() -> Iterator[ObjectStore]:
    with object_store() as found:
        yield found


@pytest.fixture
def bucket(running: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> ObjectStore:
    """An object store to which the environment leads."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    storage._opened.cache_clear()
    return running


@pytest.fixture(params=["path", "bucket"])
def work(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty folder of each kind."""
    if request.param == "path":
        return str(tmp_path)
    request.getfixturevalue("bucket")
    return f"s3://bucket/{tmp_path.name}?region=us-east-1"


def test_files_are_read_as_they_were_written(work: str) -> None:
    folder = storage.join(work, "folder")
    storage.make_folder(folder)
    name = storage.new_name(folder)
    assert not storage.exists(name)
    with storage.create(name) as file:
        file.write(b"x" * 9_000_000)
        file.write(b"y")
    assert storage.exists(name)
    assert storage.read(name) == b"x" * 9_000_000 + b"y"
    with storage.open_file(name) as file:
        assert file.read_at(2, 8_999_999) == b"xy"
    with storage.open_stream(name) as file:
        assert len(file.read()) == 9_000_001
    storage.write(storage.join(folder, "empty"), b"")
    assert storage.read(storage.join(folder, "empty")) == b""
    storage.delete(name)
    storage.delete(name)
    assert not storage.exists(name)
    with pytest.raises(FileNotFoundError):
        storage.read(name)
    storage.delete_folder(folder)
    assert not storage.exists(storage.join(folder, "empty"))
    storage.delete_leftovers(folder)


def test_names_have_their_folder_before_what_a_url_asks_for() -> None:
    assert storage.join("/shared", "a", "b") == "/shared/a/b"
    assert storage.join("s3://bucket", "a", "b") == "s3://bucket/a/b"
    assert storage.join("s3://bucket/folder/?region=x", "a") == "s3://bucket/folder/a?region=x"
    assert storage.base_name("s3://bucket/folder/a?region=x/y") == "a"
    assert storage.base_name("/shared/a?b") == "a?b"


@pytest.mark.usefixtures("bucket")
def test_an_object_is_there_when_it_is_whole() -> None:
    name = "s3://bucket/whole/a"
    with storage.create(name) as file:
        file.write(b"x" * 30_000_000)
        assert not storage.exists(name)
    assert len(storage.read(name)) == 30_000_000


def test_each_bucket_is_read_from_all_files(work: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffle, "TRAILER_BYTES", 64)  # less than the positions take
    schema = pa.schema([("number", pa.int64())])
    buckets = 7
    names = []
    for first in range(0, 3000, 1000):
        names.append(storage.new_name(work))
        file = shuffle.ShuffleFile(names[-1], schema, buckets)
        for start in range(first, first + 1000, 500):
            file.write(pa.RecordBatch.from_arrays([pa.array(np.arange(start, start + 500))], schema=schema))
        file.close()
    for bucket in range(buckets):
        found = [
            number for batch in shuffle.read_bucket(names, bucket, buckets, schema) for number in batch["number"].to_pylist()
        ]
        numbers = np.arange(3000)
        assert found == numbers[shuffle.buckets_of(numbers, buckets) == bucket].tolist()
    assert list(shuffle.read_bucket([], 0, buckets, schema)) == []


def test_arrow_reads_and_writes_tables(work: str) -> None:
    table = pa.table({"id": ["1", "2"]})
    name = storage.new_name(work, ".parquet")
    with storage.create(name) as file:
        parquet.write_table(table, file)
    with storage.open_file(name) as file:
        assert parquet.read_table(file).equals(table)


def test_what_is_asked_for_side_by_side_comes_in_order_and_no_more_than_some_of_it_is_in_memory() -> None:
    asked: list[str] = []

    def get(name: str) -> str:
        asked.append(name)
        return name

    names = [str(number) for number in range(100)]
    found = storage.side_by_side(get, names)
    assert next(found) == "0"
    assert len(asked) <= storage.TOGETHER + 1
    assert list(found) == names[1:]


# Folders of runs


def test_a_folder_is_gone_after_its_run_and_after_an_error_too(work: str, tmp_path: Path, bucket: ObjectStore) -> None:
    with work_folder(work) as folder:
        storage.write(storage.join(folder, "a"), b"one")
    assert not storage.exists(storage.join(folder, "a"))

    def fail() -> None:
        with work_folder(work) as folder:
            found.append(folder)
            storage.write(storage.join(folder, "a"), b"one")
            raise ZeroDivisionError

    found: list[str] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    assert not storage.exists(storage.join(found[0], "a"))
    assert list(tmp_path.iterdir()) == []
    assert not [name for name in bucket.names() if tmp_path.name in name and "ferryman-" in name]


def test_a_folder_to_be_kept_outlives_an_error_and_is_found_when_its_snapshot_is_whole(work: str) -> None:
    def fail() -> None:
        with work_folder(work) as folder:
            found.append(folder)
            keep_on_error(folder)
            storage.make_folder(storage.join(folder, "source"))
            raise ZeroDivisionError

    found: list[str] = []
    with pytest.raises(ZeroDivisionError):
        fail()
    name = storage.base_name(found[0])
    assert find_snapshot(work, name) is None
    storage.write(storage.join(found[0], "source", "complete"), b"")
    assert find_snapshot(work, name) == found[0]
    assert find_snapshot(work, "../" + name) is None
    with work_folder(work, found[0]):
        pass
    assert find_snapshot(work, name) is None


# What is refused


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://host/work", "a work folder can't be at ftp://; give a path, or one of s3, gs, abfs, abfss, hdfs://"),
        ("s3:///work", "s3:// names no bucket; write s3://bucket/folder"),
        ("hdfs:///work", "hdfs:// names no host; write hdfs://host/folder"),
        ("s3://bucket/work?colour=red", "s3:// has no parameter 'colour'; there are: endpoint_override, region, scheme"),
        ("s3://ann:sw0rd@bucket/work", "the URL of a work folder holds no password or key"),
        ("s3://sw0rd@bucket/work", "the URL of a work folder holds no password or key"),
        ("s3://bucket/work?secret_key=sw0rd", "the URL of a work folder holds no password or key"),
        ("abfs://box@host/work?account_key=sw0rd", "the URL of a work folder holds no password or key"),
        ("abfs://:sw0rd@host/work", "the URL of a work folder holds no password or key"),
    ],
)
def test_what_can_be_no_folder_is_refused_without_its_password(url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught, work_folder(url):
        pass
    assert "sw0rd" not in str(caught.value)


@pytest.mark.parametrize("url", ["abfs://box@account.dfs.core.windows.net/work", "hdfs://ann@host:8020/work", "gs://box/work"])
def test_urls_of_other_stores_are_taken(url: str) -> None:
    storage.check_url(url)


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_is_not_there_is_named() -> None:
    said = r"^s3://nobody/work: no folder can be made there \(there is no such bucket\); let --work name one that is there$"
    with pytest.raises(UsageError, match=said), work_folder("s3://nobody/work"):
        pass


@pytest.mark.usefixtures("bucket")
def test_a_bucket_that_goes_away_is_one_sentence() -> None:
    with pytest.raises(ServerError, match=r"^s3://nobody/a: there is no such bucket; ") as caught, work_errors("s3://nobody/a"):
        storage.write("s3://nobody/a", b"")
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("bucket")
def test_an_endpoint_of_the_environment_that_is_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "ftp://host")
    with pytest.raises(UsageError, match="the endpoint 'ftp://host' in the environment is no http:// or https://"):
        storage.exists("s3://bucket/other?region=eu-central-1")


def test_the_endpoint_of_a_url_goes_before_that_of_the_environment(bucket: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    url = f"s3://bucket/named?endpoint_override=127.0.0.1:{bucket.port}&scheme=http"
    storage.write(url, b"one")
    assert "bucket/named" in bucket.names()


def test_processes_of_this_machine_take_a_path_alone() -> None:
    with pytest.raises(UsageError, match="a work folder in an object store is for --engine spark; let --work name a path"):
        get_engine("local", work="s3://bucket/work")


PROGRAM = """
import sys
sys.modules["pyarrow"] = sys.modules["pyarrow.fs"] = None
from ferryman.migrations.engine.resume import work_folder
from ferryman.schema.errors import UsageError
try:
    with work_folder("s3://bucket/work"):
        pass
except UsageError as error:
    print(error)
"""


def test_without_pyarrow_it_is_said_what_to_install() -> None:
    said = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert said.startswith("a work folder at s3:// needs a pyarrow that has it: pip install 'ferryman[spark]'")
    assert said.count("\n") == 1

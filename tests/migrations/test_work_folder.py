"""Work folders: a path and a bucket behave alike, files are there whole or not at all, and passwords are not shown."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from ferryman.migrations.work_folder import WorkFolder
from ferryman.schema.errors import ServerError, UsageError
from moto.server import ThreadedMotoServer
from pyarrow import fs, parquet

SECRET = "sw0rd+fish/1"


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    """A bucket of a server of S3's protocol: its URL up to the folder, and its parameters."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    fs.S3FileSystem(
        access_key="ann", secret_key=SECRET, endpoint_override=f"{host}:{port}", scheme="http", allow_bucket_creation=True
    ).create_dir("bucket")
    yield f"s3://ann:sw0rd%2Bfish%2F1@bucket/work?endpoint_override={host}%3A{port}&scheme=http&region=us-east-1"
    server.stop()


@pytest.fixture(params=["path", "bucket"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[WorkFolder]:
    """An empty folder of each kind."""
    if request.param == "path":
        yield WorkFolder.parse(str(tmp_path / "work"))
        return
    found = WorkFolder.parse(request.getfixturevalue("store"))
    yield found
    found.clear()


def test_files_are_read_as_they_were_written(folder: WorkFolder) -> None:
    assert folder.files() == []
    folder.check()
    folder.write("b", b"two")
    folder.write("a", b"one")
    folder.child("deeper").write("c", b"three")
    assert folder.files() == ["a", "b"]
    assert folder.read("a") == b"one"
    assert folder.child("deeper").files() == ["c"]
    assert folder.exists("b")
    assert not folder.exists("c")
    folder.delete("b")
    folder.delete("b")
    assert folder.files() == ["a"]
    folder.clear()
    assert (folder.files(), folder.child("deeper").files()) == ([], [])


def test_a_file_is_there_when_it_is_whole(folder: WorkFolder) -> None:
    def break_off() -> None:
        with folder.writing("half") as file:
            file.write(b"x" * (9 << 20))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        break_off()
    assert folder.files() == []
    with folder.writing("whole") as file:
        file.write(b"x" * (9 << 20))
        assert folder.files() == []
    assert len(folder.read("whole")) == 9 << 20


def test_arrow_reads_and_writes_files(folder: WorkFolder) -> None:
    table = pa.table({"id": ["1", "2"]})
    with folder.writing("jobs.parquet") as file:
        parquet.write_table(table, file)
    with folder.reading("jobs.parquet") as file:
        assert parquet.read_table(file).equals(table)


def test_a_folder_travels(folder: WorkFolder) -> None:
    folder.child("deeper").write("a", b"one")
    assert pickle.loads(pickle.dumps(folder.child("deeper"))).read("a") == b"one"  # noqa: S301 - as Spark does


def test_what_is_not_there_is_an_error_that_names_the_folder(folder: WorkFolder) -> None:
    with pytest.raises(ServerError, match=r"work.*: a can't be read: "), folder.reading("a"):
        pass


def test_passwords_are_not_shown(store: str) -> None:
    folder = WorkFolder.parse(store.replace("bucket", "nobody"))
    with pytest.raises(ServerError) as caught:
        folder.write("a", b"one")
    shown = f"{folder} {folder!r} {folder.display} {caught.value} {caught.value!r}"
    assert "sw0rd" not in shown
    assert "s3://ann:***@nobody/work?" in shown
    query = WorkFolder.parse("abfs://box@host/work?account_key=sesame&x=1")
    assert query.display == "abfs://box@host/work?account_key=***&x=1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the work folder is empty"),
        ("ftp://host/work", "a work folder can't be at ftp://; give a path, or one of s3, gs, abfs, abfss, hdfs://"),
        ("s3:///work", "s3:// names no bucket; write s3://bucket/folder"),
    ],
)
def test_what_can_be_no_folder_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        WorkFolder.parse(text)


def test_names_stay_in_the_folder(folder: WorkFolder) -> None:
    for name in ("", "..", "a/b", ".hidden"):
        with pytest.raises(UsageError, match="can't be the name of a file"):
            folder.write(name, b"")

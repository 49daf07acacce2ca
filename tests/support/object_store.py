"""A server of S3's protocol, with a bucket, as a process of its own: Arrow holds Python's lock while it waits for an answer."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

from attrs import frozen
from pyarrow import fs

KEY, SECRET = "ann", "sw0rd+fish"
BUCKET = "bucket"

PROGRAM = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@frozen
class ObjectStore:
    """The running server."""

    port: int

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """What processes that use it need in their environment."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    @property
    def files(self) -> fs.S3FileSystem:
        """What is in it, seen from this process."""
        return fs.S3FileSystem(
            access_key=KEY,
            secret_key=SECRET,
            region="us-east-1",
            endpoint_override=f"127.0.0.1:{self.port}",
            scheme="http",
            allow_bucket_creation=True,
        )

    def names(self) -> list[str]:
        """The files in the bucket."""
        found = self.files.get_file_info(fs.FileSelector(BUCKET, recursive=True))
        return sorted(each.path for each in found if each.type == fs.FileType.File)


@contextlib.contextmanager
def object_store() -> Iterator[ObjectStore]:
    """A server with an empty bucket, until the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            store = ObjectStore(int(process.stdout.readline()))
            store.files.create_dir(BUCKET)
            yield store
        finally:
            process.stdin.close()  # it ends by itself

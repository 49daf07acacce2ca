"""A certificate authority for tests, made with the ``openssl`` program."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from attrs import frozen

OPENSSL = shutil.which("openssl")


@frozen
class Authority:
    """A CA with one certificate for 127.0.0.1 and localhost, which serves servers and clients."""

    folder: Path

    @property
    def ca(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"


def authority(folder: Path, name: str, host: str = "127.0.0.1") -> Authority:
    """Makes a CA and a certificate for ``host``, valid for some days."""
    folder.mkdir(parents=True)
    _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "9", "-subj", f"/CN={name}",
             "-keyout", "ca.key", "-out", "ca.crt")  # fmt: skip
    _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name} server",
             "-keyout", "server.key", "-out", "server.csr")  # fmt: skip
    kind = "IP" if host[0].isdigit() else "DNS"
    (folder / "names").write_text(f"subjectAltName={kind}:{host}\n")
    _openssl(folder, "x509", "-req", "-in", "server.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", "9",
             "-extfile", "names", "-out", "server.crt")  # fmt: skip
    return Authority(folder)


def _openssl(folder: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True)

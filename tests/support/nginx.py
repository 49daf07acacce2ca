"""nginx as tests run it: the system's, with the ``server`` block of a page of the docs, on a free port."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import re
import socket
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from .servers import free_port

NGINX = Path("/usr/sbin/nginx")
DOCS = Path(__file__).parents[2] / "docs"

_BLOCK = re.compile(r"^    server \{$.*?^    \}$", re.MULTILINE | re.DOTALL)
_FRAME = """
{user} daemon off; worker_processes 1; pid nginx.pid; error_log stderr;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
{server}
}}
"""


def server_block(page: str) -> str:
    """The example of a page of the docs."""
    (found,) = _BLOCK.findall((DOCS / page).read_text("utf-8"))
    return str(found)


@contextlib.contextmanager
def nginx(directory: Path, server: str, passwords: Mapping[str, str]) -> Iterator[str]:
    """The URL of nginx with this ``server`` block; its port and the file of its passwords are replaced."""
    port = free_port()
    (directory / "tmp").mkdir()
    lines = [f"{user}:{{SHA}}{_sha1(password)}" for user, password in passwords.items()]
    (directory / "htpasswd").write_text("\n".join(lines) + "\n", "utf-8")
    server = server.replace("listen 80;", f"listen 127.0.0.1:{port};").replace("/etc/nginx/htpasswd", f"{directory}/htpasswd")
    user = "user root;" if os.geteuid() == 0 else ""  # whose files its workers must read
    (directory / "nginx.conf").write_text(_FRAME.format(server=server, user=user), "utf-8")
    command = [str(NGINX), "-p", str(directory), "-c", "nginx.conf", "-e", "stderr"]
    # It checks the file and opens its ports before it prints the first notice, so a failure is shown at once.
    subprocess.run([*command, "-t"], check=True, capture_output=True, timeout=60)
    with (directory / "log").open("wb") as log, subprocess.Popen(command, stderr=log) as process:
        try:
            _wait_until_listening(port, process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    while process.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
    raise AssertionError(f"nginx has ended with {process.returncode}")


def _sha1(password: str) -> str:
    return base64.b64encode(hashlib.sha1(password.encode(), usedforsecurity=False).digest()).decode()

"""An installed ferryman writes to the user's cache folder and to temporary folders that are gone afterwards: to nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from attrs import field, frozen
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address

from ..conftest import SERVERS
from ..support.packages import install
from ..support.servers import Server
from ..support.unprivileged import obeying_permissions

NOW = 1_795_262_676_000
PROGRAM = [sys.executable, "-c", "from ferryman.cli.main import main; main()"]


@frozen
class Machine:
    """An installation, a home, a current folder and one for temporary files, and nothing in them but the installation."""

    folder: Path
    site: Path
    home: Path = field(init=False)
    here: Path = field(init=False)
    temporary: Path = field(init=False)

    def __attrs_post_init__(self) -> None:
        for name in ("home", "here", "temporary"):
            object.__setattr__(self, name, self.folder / name)
            (self.folder / name).mkdir()

    def ferryman(self, *arguments: str, limit: Callable[[], None] | None = None) -> str:
        """Run a command as a user of this machine. Return its stderr."""
        kept = {name: value for name, value in os.environ.items() if name not in ("FERRYMAN_CACHE_DIR", "XDG_CACHE_HOME")}
        done = subprocess.run(
            [*PROGRAM, *arguments],
            cwd=self.here,
            env={**kept, "HOME": str(self.home), "TMPDIR": str(self.temporary), "PYTHONPATH": str(self.site)},
            preexec_fn=limit,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode in (0, 1), done.stdout + done.stderr  # 1: findings
        return done.stderr

    def left(self) -> list[str]:
        """Return what is in the three folders: files of caches by their folder."""
        found = {each.relative_to(self.folder) for each in self.folder.rglob("*") if each.is_file() or not any(each.iterdir())}
        return sorted({"/".join(each.parts[:4]) for each in found} - {"home", "here", "temporary"})


def _contents(folder: Path) -> dict[Path, int]:
    return {each: each.stat().st_mtime_ns for each in folder.rglob("*")}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def machine(tmp_path: Path, site: Path) -> Machine:
    return Machine(tmp_path, site)


@pytest.fixture(scope="module")
def kue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with SERVERS[0].start(tmp_path_factory.mktemp("server")) as server:
        generate_keyspace(Address.parse(server.url(family="kue")), KeyspaceSpec(200, 1, NOW))
        yield server


@pytest.mark.servers
@pytest.mark.parametrize(("engine", "commands"), [("local", 3), ("spark", 1)])
def test_commands_write_only_to_the_cache(machine: Machine, kue: Server, engine: str, commands: int) -> None:
    before = _contents(machine.site)
    source, target = kue.url(family="kue"), kue.url(1)
    kue.client(1).flushdb()
    for command in (("audit", source), ("migrate", source, target), ("verify", source, target))[:commands]:
        machine.ferryman(*command, "--engine", engine, "--work", str(machine.temporary))
    assert machine.left() == ["home/.cache/ferryman/kernels"]
    assert _contents(machine.site) == before


@pytest.mark.servers
def test_the_demo_whose_worker_is_killed_leaves_nothing(machine: Machine) -> None:
    before = _contents(machine.site)
    machine.ferryman("demo", "--engine", "local", "--jobs", "100")
    assert machine.left() in ([], ["home/.cache/ferryman/kernels"])
    assert _contents(machine.site) == before


def test_folders_that_an_earlier_installation_has_left_hide_nothing(tmp_path: Path) -> None:
    (tmp_path / "ferryman" / "schema" / "native" / "__pycache__").mkdir(parents=True)
    command = [sys.executable, "-c", "import sys, ferryman.schema.native.keys; print(sys.path[1])"]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str(tmp_path)


@pytest.mark.servers
def test_a_read_only_installation_and_home_take_one_line_more(machine: Machine, kue: Server) -> None:
    folders = [machine.home, machine.here, machine.site, *(each for each in machine.site.rglob("*") if each.is_dir())]
    for each in folders:
        each.chmod(0o555)
    try:
        (line,) = machine.ferryman(
            "audit", kue.url(family="kue"), "--work", str(machine.temporary), limit=obeying_permissions()
        ).splitlines()
    finally:
        for each in folders:
            each.chmod(0o755)
    assert "Compiled code is not cached" in line
    assert str(machine.home) in line
    assert machine.left() == []

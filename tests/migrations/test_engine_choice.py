"""Who carries some thousand keys: processes, once what they need is compiled; before that this process, which begins at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from ferryman.migrations import local
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.local import LocalEngine, is_compiled
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address

from ..support.servers import Server

NOW = 1_795_262_676_000


class ByProcesses(Exception):
    """Processes would carry it."""


@pytest.fixture
def _processes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*_: object) -> NoReturn:
        raise ByProcesses

    monkeypatch.setattr(ProcessEngine, "_session", tell)


@pytest.mark.usefixtures("_processes_tell")
@pytest.mark.parametrize(
    ("is_compiled", "keys", "are_by_processes"), [(True, 7, 0), (True, 9, 1), (False, 15, 0), (False, 17, 1)]
)
def test_who_carries_so_many_thousand_keys(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_compiled: bool, keys: int, are_by_processes: int
) -> None:
    monkeypatch.setattr(local, "is_compiled", lambda: is_compiled)
    source, target = Address.parse(server.url(family="kue")), Address.parse(server.url(1))
    generate_keyspace(source, KeyspaceSpec(5, 1, NOW))
    server.client().mset({f"other:{number}": 1 for number in range(1_000 * keys)})

    def verify() -> None:
        assert LocalEngine().verify(source, target, Plan.between(source, target, NOW), lambda _: None).source_jobs == 5

    if are_by_processes:
        with pytest.raises(ByProcesses):
            verify()
    else:
        verify()


KERNEL = """
from numba import int64
from ferryman.schema.columnar.jit import kernel, load_kernels

@kernel(int64)
def twice(number):
    return 2 * number

load_kernels("numbers_twice")
"""


def test_kernels_that_were_compiled_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local.columnar, "__path__", [str(tmp_path)])
    (tmp_path / "numbers_twice.py").write_text(KERNEL)
    assert not is_compiled()
    subprocess.run([sys.executable, "-c", "import numbers_twice"], cwd=tmp_path, check=True)
    assert is_compiled()

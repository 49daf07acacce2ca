"""Who carries some thousand keys: processes, once what they need is compiled; before that this process, which begins at once."""

from __future__ import annotations

from typing import NoReturn

import pytest
from ferryman.migrations import local
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.local import LocalEngine
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
    ("has_kernels", "keys", "are_by_processes"), [(True, 7, 0), (True, 9, 1), (False, 15, 0), (False, 17, 1)]
)
def test_who_carries_so_many_thousand_keys(
    server: Server, monkeypatch: pytest.MonkeyPatch, has_kernels: bool, keys: int, are_by_processes: int
) -> None:
    monkeypatch.setattr(local, "has_kernels", lambda: has_kernels)
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

"""Who carries ten thousand keys: processes, if tables make them quick; else this process, which begins at once."""

from __future__ import annotations

from typing import NoReturn

import pytest
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address

from ..support.servers import Server

KEYS = 10_000
NOW = 1_795_262_676_000


class ByProcesses(Exception):
    """Processes would carry it."""


@pytest.fixture
def _processes_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def tell(*_: object) -> NoReturn:
        raise ByProcesses

    monkeypatch.setattr(ProcessEngine, "_session", tell)


@pytest.mark.usefixtures("_processes_tell")
def test_ten_thousand_keys_are_carried_by_processes_only_where_jobs_are_read_as_tables(server: Server) -> None:
    kue, bee = (Address.parse(server.url(family=family)) for family in ("kue", "bee"))
    for address in (kue, bee):
        generate_keyspace(address, KeyspaceSpec(5, 1, NOW))
    server.client().mset({f"other:{number}": 1 for number in range(KEYS)})
    target = Address.parse(server.url(1))
    with pytest.raises(ByProcesses):
        LocalEngine().verify(kue, target, Plan.between(kue, target, NOW), lambda _: None)
    assert LocalEngine().verify(bee, target, Plan.between(bee, target, NOW), lambda _: None).source_jobs == 5

"""A keyspace that one task could carry keeps all cores busy, where each has enough to do; what they load is loaded before."""

from __future__ import annotations

import subprocess
import sys

import pytest
from ferryman.migrations.engine.key_scan import LEAST_KEYS_A_PROCESS, parts_for_cores, task_count
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.migrations.generate import KeyspaceSpec, generate_keyspace
from ferryman.schema.connection.address import Address

from ..support.servers import Server

NOW = 1_795_262_676_000


def with_keys(server: Server, number: int) -> Address:
    address = Address.parse(server.url(family="kue"))
    server.client().mset({f"other:{each}": 1 for each in range(number)})
    return address


@pytest.mark.parametrize(("keys", "cores", "made"), [(1, 2, 1), (2, 2, 2), (2, 64, 2), (9, 3, 3)])
def test_each_core_has_enough_to_do(server: Server, keys: int, cores: int, made: int) -> None:
    assert parts_for_cores(with_keys(server, keys * LEAST_KEYS_A_PROCESS), cores) == made


def test_few_keys_are_one_part(server: Server) -> None:
    assert parts_for_cores(with_keys(server, 10), 8) == 1


def test_what_one_task_could_carry_is_shared_by_all_cores(server: Server) -> None:
    address = with_keys(server, 2 * LEAST_KEYS_A_PROCESS)
    generate_keyspace(address, KeyspaceSpec(20, 1, NOW))
    assert task_count(address) == 1
    steps: dict[str, int | None] = {}

    def note(phase: str, _done: int, total: int | None) -> None:
        steps[phase] = total

    engine = ProcessEngine(runner=ProcessRunner(cores=2))
    census = engine.audit(address, NOW, lambda _: None, note)
    assert census.jobs == 20
    assert (steps["scanning kue keys"], steps["reading kue keys"]) == (2, 2)


LOADS = """
import sys
from ferryman.migrations.engine.process_engine import ProcessEngine
from ferryman.migrations.engine.processes import ProcessRunner
from ferryman.migrations.plan import Plan
from ferryman.schema.connection.address import Address

class Watching(ProcessRunner):
    def run(self, task, *others, **named):
        def watched(part):
            before = set(sys.modules)
            summary = task(part)
            print(*set(sys.modules) - before, flush=True)
            return summary
        return super().run(watched, *others, **named)

source, target = map(Address.parse, sys.argv[1:])
ProcessEngine(tasks=2, runner=Watching(cores=2)).verify(source, target, Plan.between(source, target, 1), lambda _: None)
"""


def test_what_processes_need_is_loaded_before_they_are_forked(server: Server) -> None:
    source = server.url(family="kue")
    generate_keyspace(Address.parse(source), KeyspaceSpec(50, 1, NOW))
    done = subprocess.run(
        [sys.executable, "-c", LOADS, source, server.url(1)], capture_output=True, text=True, timeout=580, check=False
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) > 10, "each part tells"
    assert set(" ".join(lines).split()) == set()

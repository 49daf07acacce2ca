"""What is found in a cluster is looked at again where all that speaks of a job stands in one slot; elsewhere that is said."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ferryman.migrations.local import LocalEngine
from ferryman.schema.connection.address import Address
from ferryman.schema.family import Command, Target, get_family
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding

from ..conftest import SERVERS
from ..support.clusters import Cluster, cluster

NOW = 1_800_000_000_000


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(SERVERS[0], tmp_path_factory.mktemp("cluster")) as running:
        yield running


def send(nodes: Cluster, commands: list[Command]) -> None:
    for command in commands:
        key = command[1]
        assert isinstance(key, bytes)
        nodes.say(nodes.owner(key), *command)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "prefix", "rule", "is_read_again"),
    [("ferryman", "f", "NATIVE-2", True), ("kue", "{k}", "KUE-4", True), ("kue", "k", "KUE-4", False)],
)
def test_findings_in_a_cluster(nodes: Cluster, name: str, prefix: str, rule: str, *, is_read_again: bool) -> None:
    family, target = get_family(name), Target(prefix, NOW, generated=True)
    jobs = [Job(str(number), f"queue {number % 5}", "n", State.FAILED, payload=b"{}") for number in range(1, 11)]
    for job in jobs:
        send(nodes, family.write(job, target))
    broken = jobs[3:6]
    for job in broken:
        send(nodes, family.inject(rule, job, target))
    found: list[Finding] = []
    census = LocalEngine().audit(Address.parse(nodes.url(family=name, prefix=prefix)), NOW, found.append)
    about = [finding for finding in found if finding.rule == rule]
    assert {finding.job_id for finding in about} == {job.id for job in broken}
    # Where keys of a job lie in different slots, only findings that its record alone tells are confirmed.
    of_several_keys = [finding for finding in found if finding.job_id in {job.id for job in broken}]
    assert census.unconfirmed == (0 if is_read_again else len(of_several_keys))
    assert not census.passing

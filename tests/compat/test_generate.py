"""Generated jobs stand where their generator says."""

from __future__ import annotations

import pytest
import redis
from ferryman.schema.family import get_family
from ferryman.testing.keyspaces import dump, read_keyspace, store

from ..support.mending import NOW


@pytest.mark.parametrize("name", ["bee", "kickq", "pjq"])
def test_the_position_of_a_generated_job_is_the_one_that_it_is_read_with(client: redis.Redis, name: str) -> None:
    family = get_family(name)
    made = list(family.generate(500, 3, NOW))
    store(client, family, family.default_prefix, made, NOW)
    read = read_keyspace(family, dump(client).values(), family.default_prefix, NOW).jobs()
    assert {(job.queue, job.id): job.position for job in read} == {(job.queue, job.id): job.position for job in made}

"""What generated jobs of pjq are like, beside what holds in every family."""

from __future__ import annotations

from collections import Counter

from ferryman.compat.pjq import FAMILY
from ferryman.compat.pjq.generate import QUEUES
from ferryman.schema.job import State

from ...support.families import assert_in_shares

NOW = 1_800_000_000_000


def test_all_queues_and_states_occur_in_about_their_shares() -> None:
    jobs = list(FAMILY.generate(5000, 1, NOW))
    assert_in_shares((job.queue for job in jobs), QUEUES, within=3)
    states = Counter(job.state for job in jobs)
    assert states.keys() == {State.WAITING, State.ACTIVE, State.COMPLETED, State.FAILED}
    assert 0.4 < states[State.WAITING] / 5000 < 0.55
    sizes = sorted(len(job.payload or b"") for job in jobs)
    assert 200 < sizes[2500] < 1000
    assert sizes[-1] > 4000

"""What verification says about two jobs, and about two orders. Pure."""

from __future__ import annotations

import pytest
from attrs import evolve
from ferryman.compat.kue import FAMILY as KUE
from ferryman.migrations.compare import BEFORE, SHOWN, brief, contrast, differences
from ferryman.migrations.order import listing_order, order_difference, pop_orders
from ferryman.schema.job import Job, State

from ..support.toy import TOY

JOB = Job("7", "mail", "mail", State.WAITING, payload=b"\xff", extra={"kue": {"delay": "0.5"}, "migration": {"state": "active"}})


def test_equal_jobs_have_no_differences_whatever_their_position() -> None:
    assert list(differences(JOB, evolve(JOB, position=3), KUE)) == []


def test_every_differing_field_is_named_with_both_values() -> None:
    (state, payload) = differences(JOB, evolve(JOB, state=State.FAILED, payload=b"{}"), KUE)
    assert (state.field, state.source, state.target) == ("state", '"waiting"', '"failed"')
    assert (payload.job_id, payload.field, payload.source, payload.target) == ("7", "payload", '{"b64":"/w=="}', '"{}"')


def test_a_family_is_held_to_its_own_extra_only_unless_it_keeps_all() -> None:
    job = evolve(JOB, extra={"toy": {"colour": "red"}, "kue": {"delay": "0.5"}})
    own = evolve(job, extra={"toy": {"colour": "red"}})
    assert not TOY.keeps_extra
    assert list(differences(job, own, TOY)) == []
    assert KUE.keeps_extra
    assert [each.field for each in differences(job, own, KUE)] == ["extra"]
    assert [each.field for each in differences(job, evolve(job, extra={}), TOY)] == ["extra"]


def test_long_and_unprintable_values_become_one_short_line() -> None:
    assert len(brief("x" * 10_000)) == SHOWN + 1
    assert "\n" not in brief(b"a\nb\x1b[31m")


def test_the_first_job_out_of_order_is_named() -> None:
    difference = order_difference("mail", ["1", "2", "3", "4"], ["1", "3", "2", "4"])
    assert difference is not None
    assert (difference.job_id, difference.field, difference.source) == ("2", "order", "place 1")
    assert difference.target == "place 2, after job 3"


def test_only_jobs_that_wait_on_both_sides_have_an_order() -> None:
    assert order_difference("mail", ["1", "2", "3"], ["9", "1", "3"]) is None


def test_jobs_are_listed_as_they_will_run_and_finished_ones_by_number() -> None:
    jobs = [
        Job("10", "b", "b", State.WAITING, position=0),
        Job("9", "b", "b", State.WAITING, position=1),
        Job("8", "b", "b", State.WAITING),
        Job("10", "a", "a", State.FAILED),
        Job("9", "a", "a", State.FAILED),
        Job("x", "a", "a", State.FAILED),
        Job("٣", "a", "a", State.FAILED),
    ]
    assert [(job.queue, job.id) for job in sorted(jobs, key=listing_order)] == [
        ("a", "9"),
        ("a", "10"),
        ("a", "x"),
        ("a", "٣"),
        ("b", "10"),
        ("b", "9"),
        ("b", "8"),
    ]
    assert pop_orders(jobs) == {"b": ["10", "9"]}


@pytest.mark.parametrize("length", [0, 100, 5000])
def test_a_difference_is_shown_from_shortly_before_it_begins(length: int) -> None:
    same = "same " * length
    want, have = contrast({"a": same, "b": "was", "c": same}, {"a": same, "b": "is", "c": same})
    assert '"b":"was"' in want
    assert '"b":"is"' in have
    assert want.startswith("…") == have.startswith("…") == (length > 0)
    assert max(len(want), len(have)) <= SHOWN + 2


def test_of_values_that_go_on_only_the_rest_is_shown() -> None:
    want, have = contrast("x" * 5000, "x" * 5001)
    assert (len(want), len(have)) == (BEFORE + 2, BEFORE + 3)
    assert contrast(1, 2) == ("1", "2")
    assert contrast(None, "x" * 500)[0] == "null"

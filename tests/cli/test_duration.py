"""Durations read the same in every option and on the page; whatever else is written gets a sentence that says how."""

from __future__ import annotations

import click
import pytest
from ferryman.cli.duration import Duration, largest_units, parse_duration
from ferryman.cli.main import COMMANDS, main

from ..support.command import ferryman


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("30m", 1_800_000),
        ("30 min", 1_800_000),
        ("1.5h", 5_400_000),
        (" 7 d ", 604_800_000),
        ("0s", 0),
    ],
)
def test_a_number_with_its_unit_is_a_duration(text: str, ms: int) -> None:
    assert parse_duration(text) == ms


@pytest.mark.parametrize(
    "text", ["", "an hour", "-5m", "5", "5 weeks", "1h30m", "2 hours", "٣h", "1e3s", "inf", "1.s", ".5h", "9999999999s", "5\nm"]
)
def test_nothing_else_is_one(text: str) -> None:
    with pytest.raises(ValueError, match="is no length of time; write a number with its unit"):
        parse_duration(text)


def test_where_seconds_are_meant_a_number_will_do() -> None:
    assert parse_duration("0.2", bare_is_seconds=True) == 200
    with pytest.raises(ValueError, match="'-1' is no length"):
        parse_duration("-1", bare_is_seconds=True)


def durations() -> list[tuple[str, str]]:
    """Each command's options that take one."""
    commands = {name: main.get_command(click.Context(main), name) for name in COMMANDS}
    return [
        (name, option.opts[0])
        for name, command in commands.items()
        if command is not None
        for option in command.params
        if isinstance(option.type, Duration)
    ]


def test_every_option_that_takes_a_time_reads_it_so() -> None:
    assert {*durations()} == {
        ("audit", "--older-than"),
        ("history", "--last"),
        ("history", "--step"),
        ("steer", "--older-than"),
        ("steer", "--younger-than"),
        ("top", "--interval"),
    }


@pytest.mark.parametrize(("command", "option"), durations(), ids="".join)
def test_a_wrong_one_is_told_with_the_option(command: str, option: str) -> None:
    before = {"history": ["mail"], "steer": ["cancel"]}.get(command, [])
    run = ferryman(command, "ferryman://127.0.0.1:1/0", *before, option, "soon")
    assert run.status == 2
    assert f"'{option}': 'soon' is no length of time; write a number with its unit, as 90s, 30m, 2h or 7d" in " ".join(
        run.error.split()
    )


def test_an_interval_that_is_too_short_is_refused() -> None:
    run = ferryman("top", "ferryman://127.0.0.1:1/0", "--interval", "10ms")
    assert "'10ms' is too short; at least 0.1s is possible" in run.error


@pytest.mark.parametrize(
    ("ms", "units"),
    [
        (-5, [(0, "s")]),
        (59_999, [(59, "s")]),
        (60_000, [(1, "min"), (0, "s")]),
        (3_905_000, [(1, "h"), (5, "min")]),
        (1_000 * 86_400_000 + 1, [(1_000, "d"), (0, "h")]),
    ],
)
def test_a_length_of_time_is_told_in_its_two_largest_units(ms: int, units: list[tuple[int, str]]) -> None:
    assert largest_units(ms) == units

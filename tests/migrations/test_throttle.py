"""Throttles: a rate is kept in whatever batches keys come, a busy server is given time, and what is read stays the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ferryman.migrations import throttle
from ferryman.migrations.reading import BATCH
from ferryman.migrations.scan import SCAN_COUNT
from ferryman.migrations.source import open_source
from ferryman.migrations.throttle import LAG, POLITE, POLITE_BATCH, POLITE_PAGE, UNTHROTTLED, Pace, Throttle
from ferryman.schema.connection.address import Address
from ferryman.schema.errors import UsageError

from ..support.captures import captures, load
from ..support.servers import Server


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    return clock  # type: ignore[return-value]


def read(pace: Pace, clock: Clock, seconds: float, keys: int) -> None:
    """One batch that takes the server so long."""
    pace.begin()
    clock.sleep(seconds)
    pace.end(keys)


def test_a_rate_is_kept_in_batches_of_any_size(clock: Clock) -> None:
    pace = Throttle(1000).pace()
    began = clock.now
    for keys in (100, 1, 7, 892, 500):
        read(pace, clock, 0.0001, keys)
    pace.begin()
    assert clock.now - began == pytest.approx(1.5)


def test_a_slow_server_is_not_waited_for_twice(clock: Clock) -> None:
    pace = Throttle(1000).pace()
    began = clock.now
    for _ in range(10):
        read(pace, clock, 0.5, 100)
    assert clock.now - began == pytest.approx(5.0)


def test_chunks_of_a_long_key_keep_the_rate_too(clock: Clock) -> None:
    began = clock.now
    assert list(Throttle(1000).pace().through(iter("abcd"))) == list("abcd")
    assert clock.now - began == pytest.approx(0.4, abs=LAG)


def test_politeness_gives_a_busy_server_as_much_time_as_it_takes(clock: Clock) -> None:
    pace = Throttle.parse("polite").pace()
    read(pace, clock, 0.001, 100)
    read(pace, clock, 0.1, 100)
    busy_until = clock.now
    pace.begin()
    assert clock.now - busy_until == pytest.approx(0.1)
    read(pace, clock, 0.001, 100)
    quiet_since = clock.now
    pace.begin()
    assert clock.now - quiet_since == pytest.approx(100 / POLITE - 0.001)


def test_what_sleeping_too_long_costs_is_made_up_for(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sleep = clock.sleep
    monkeypatch.setattr(clock, "sleep", lambda seconds: sleep(seconds + 0.0002))
    pace = Throttle(1000).pace()
    began = clock.now
    for _ in range(1000):
        read(pace, clock, 0.0, 10)
    pace.begin()
    assert clock.now - began == pytest.approx(10, abs=2 * LAG)


def test_a_pause_of_the_reader_is_not_made_up_for(clock: Clock) -> None:
    pace = Throttle(1000).pace()
    read(pace, clock, 0.0, 10)
    clock.sleep(60)
    began = clock.now
    for _ in range(100):
        read(pace, clock, 0.0, 10)
    pace.begin()
    assert clock.now - began == pytest.approx(1, abs=2 * LAG)


def test_tasks_share_a_rate() -> None:
    assert Throttle(1000, yields=True).shared(4) == Throttle(250, yields=True)
    assert UNTHROTTLED.shared(4) == UNTHROTTLED


def test_a_chunk_of_a_long_key_counts_for_as_much_at_a_slow_rate(clock: Clock) -> None:
    """Its batches hold fewer keys then, but the chunk is as long."""
    began = clock.now
    assert list(Throttle(10).pace().through(iter("abcd"))) == list("abcd")
    assert clock.now - began == pytest.approx(40, abs=2 * LAG)


def test_a_slow_rate_is_even() -> None:
    assert Throttle(50).batch(500) == 5
    assert Throttle(50).shared(16).batch(500) == 1
    assert Throttle(1_000_000).batch(500) == UNTHROTTLED.batch(500) == 500


def test_without_a_rate_nobody_waits(clock: Clock) -> None:
    pace = UNTHROTTLED.pace()
    began = clock.now
    for _ in range(100):
        read(pace, clock, 0.0, 1000)
    assert clock.now == began


@pytest.mark.parametrize("text", ["", "fast", "-1", "0", "1.5", "٣"])
def test_nonsense_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="polite"):
        Throttle.parse(text)


def test_a_throttled_reading_is_the_same_and_takes_its_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    case = next(case for case in captures("kue") if case.name == "healthy")
    load(case, server.client())
    address = Address.parse(server.url(family="kue"))
    with open_source(address) as source:
        free = [entry for batch in source.entries(0) for entry in batch]
    clock = Clock()
    monkeypatch.setattr(throttle, "time", clock)
    with open_source(address, Throttle(50)) as source:
        throttled = [entry for batch in source.entries(0) for entry in batch]
    assert sorted(map(repr, throttled)) == sorted(map(repr, free))
    # The last batch is followed by nothing, and keys that are not there are asked for as well.
    assert len(free) - Throttle(50).batch(BATCH) <= (clock.now - 100) * 50 <= len(free) + BATCH


def test_politeness_asks_for_little_at_once(server: Server) -> None:
    with server.client() as client:
        client.mset({f"q:{number}": "" for number in range(1000)})
        calls: list[int] = []
        for throttle in (UNTHROTTLED, Throttle(1e6, yields=True)):
            client.config_resetstat()
            with open_source(Address.parse(server.url(family="kue")), throttle) as source:
                sizes = [len(batch) for batch in source.entries(0)]
            assert sum(sizes) == 1000
            assert max(sizes) == (POLITE_BATCH if throttle.yields else BATCH)
            calls.append(client.info("commandstats")["cmdstat_scan"]["calls"])
        assert calls[0] <= 1000 // SCAN_COUNT + 2
        assert calls[1] >= 1000 // (2 * POLITE_PAGE)

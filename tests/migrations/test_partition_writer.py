"""Fenced writing, against real servers: no stale writer gets through, and a reopened part goes on exactly where it stood."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from random import Random
from typing import Any

import pytest
import redis
from attrs import evolve
from ferryman.migrations import partition_writer
from ferryman.migrations.fence import Condition, PartlyApplied, transact
from ferryman.migrations.packed_jobs import PackedJobs, PackedMembers, marked
from ferryman.migrations.partition_writer import BATCH_COMMANDS, open_partition, send
from ferryman.migrations.run import Run
from ferryman.migrations.store import ServerStore, Store
from ferryman.schema.connection.pipeline import PackedCommands, PipelineConnection, open_pipeline
from ferryman.schema.errors import MigrationRefused, ServerError, StaleWriter
from ferryman.schema.family import Command

from ..support.servers import Server


@pytest.fixture
def run(client: redis.Redis) -> Run:
    run = Run("0123456789abcdef", 1)
    client.hset(run.key, mapping={"state": "running", "run": "1"})
    return run


@pytest.fixture
def store(client: redis.Redis) -> Store:
    return ServerStore(client)


def job(number: int) -> tuple[bytes, list[Command]]:
    """The identity and the commands of a job that is one member of one zset."""
    return b"job %d" % number, [("HSET", f"job:{number}", "message", b"\xff\x00"), ("ZADD", "waiting", number, str(number))]


def many(jobs: Sequence[tuple[bytes, list[Command]]]) -> PackedJobs:
    """The same jobs to be put at once."""
    identities = [marked(identity) for identity, _ in jobs]
    packed = [PackedCommands.of(commands) for _, commands in jobs]
    return PackedJobs(
        memoryview(b"".join(identities)),
        list(accumulate(map(len, identities), initial=0)),
        memoryview(b"".join(bytes(each.data) for each in packed)),
        list(accumulate((len(each.data) for each in packed), initial=0)),
        list(accumulate((each.number for each in packed), initial=0)),
    )


def test_what_was_put_is_stored_when_the_part_is_closed(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        for number in range(3):
            assert writer.put(*job(number))
        writer.close()
    assert client.zrange("waiting", 0, -1) == [b"0", b"1", b"2"]
    assert client.hget("job:1", "message") == b"\xff\x00"


def test_a_part_that_is_done_takes_the_same_jobs_again_and_no_others(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0))
        writer.close()
    client.zrem("waiting", "0")
    with open_partition(store, run, "a") as again:
        again.put(*job(0))
        again.close()
    with open_partition(store, run, "a") as shorter, pytest.raises(MigrationRefused, match="source has changed"):
        shorter.close()
    with open_partition(store, run, "a") as longer:
        longer.put(*job(0))
        with pytest.raises(MigrationRefused, match="source has changed"):
            longer.put(*job(1))
    assert not client.exists("waiting", "job:1")


def test_a_reopened_part_does_not_bring_back_jobs_that_were_taken_meanwhile(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        for number in range(5):
            writer.put(*job(number))
        writer.flush()
    client.zrem("waiting", "3")
    with open_partition(store, run, "a") as again:
        for number in range(7):
            again.put(*job(number))
        again.close()
    assert client.zrange("waiting", 0, -1) == [b"0", b"1", b"2", b"4", b"5", b"6"]


def test_a_part_tells_which_jobs_this_run_has_written_whichever_opening_it_was(
    client: redis.Redis, store: Store, run: Run
) -> None:
    with open_partition(store, run, "a") as first:
        first.put(*job(0))
        first.flush()
    client.hset(run.key, "run", "2")
    for _ in range(2):
        with open_partition(store, Run(run.epoch, 2), "a") as writer:
            assert [writer.put(*job(number)) for number in range(3)] == [False, True, True]
            writer.flush()
    assert client.zcard("waiting") == 3


def test_jobs_put_but_not_sent_when_the_writer_dies_are_put_again(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0))
        writer.flush()
        writer.put(*job(1))
    with open_partition(store, run, "a") as again:
        for number in range(2):
            again.put(*job(number))
        again.close()
    assert client.zcard("waiting") == 2


def test_a_part_whose_source_changed_is_refused_before_anything_is_written(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0))
        writer.put(*job(1))
        writer.flush()
    with open_partition(store, run, "a") as another:
        another.put(*job(0))
        with pytest.raises(MigrationRefused, match="source has changed"):
            another.put(*job(5))
    with open_partition(store, run, "a") as shorter:
        shorter.put(*job(0))
        with pytest.raises(MigrationRefused, match="source has changed"):
            shorter.close()
    assert client.zcard("waiting") == 2


def test_a_writer_with_an_older_token_writes_nothing_more(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as zombie, open_partition(store, run, "b") as late:
        zombie.put(*job(0))
        with open_partition(store, run, "a") as heir, open_partition(store, run, "b"):
            heir.put(*job(0))
            heir.flush()
        client.zrem("waiting", "0")
        with pytest.raises(StaleWriter):
            zombie.flush()
        with pytest.raises(StaleWriter):
            late.put(*job(1))
    assert client.zcard("waiting") == 0


@pytest.mark.parametrize("change", [{"run": "2"}, {"state": "finished", "run": ""}])
def test_a_writer_of_an_older_run_writes_nothing_more(
    client: redis.Redis, store: Store, run: Run, change: dict[str, str]
) -> None:
    with open_partition(store, run, "a") as zombie:
        zombie.put(*job(0))
        client.hset(run.key, mapping=change)
        with pytest.raises(StaleWriter):
            zombie.close()
    with pytest.raises(StaleWriter), open_partition(store, run, "b"):
        pass
    assert not client.exists("waiting", run.partition_key("b"))


def test_other_parts_don_t_disturb_each_other(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as first, open_partition(store, run, "b") as second:
        for number in range(0, 100, 2):
            first.put(*job(number))
            first.flush()
            second.put(*job(number + 1))
            second.flush()
    assert client.zcard("waiting") == 100


def test_a_refused_command_names_its_key_and_the_batch_counts_as_not_written(client: redis.Redis, store: Store, run: Run) -> None:
    client.set("waiting", "a string")
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0))
        with pytest.raises(ServerError, match="refuses ZADD waiting: WRONGTYPE"):
            writer.flush()
    client.delete("waiting")
    with open_partition(store, run, "a") as again:
        assert again.put(*job(0))
        again.close()
    assert client.zcard("waiting") == 1


def test_batches_are_sent_by_themselves_before_they_grow_too_large(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        for number in range(BATCH_COMMANDS):
            writer.put(*job(number))
        assert client.zcard("waiting") == BATCH_COMMANDS
        writer.put(b"large", [("SET", "large", bytes(2_000_000))])
        assert client.strlen("large") == 2_000_000


def test_nothing_is_written_when_the_fence_falls_between_look_and_execution(client: redis.Redis, server: Server) -> None:
    """The window that WATCH closes: another client is faster every time, until it stops the run for good."""
    client.hset("fence", "token", "1")
    with open_pipeline(client) as pipe, server.client() as rival:

        def commands() -> Iterator[PackedCommands]:
            rival.hset("fence", "token", "2")
            yield PackedCommands.of([("SET", "written", "1")])

        class Late(list[PackedCommands]):
            """Commands that are looked at only when the transaction is sent."""

            def __iter__(self) -> Iterator[PackedCommands]:
                return commands()

        with pytest.raises(StaleWriter):
            transact(pipe, (Condition(b"fence", "token", b"1"),), Late())
        assert pipe.ask("PING") in (b"PONG", "PONG")
    assert not client.exists("written")


def test_a_touched_but_unchanged_fence_only_costs_another_try(client: redis.Redis, server: Server) -> None:
    client.hset("fence", "token", "1")
    touches = iter(range(3))
    with open_pipeline(client) as pipe, server.client() as rival:

        class Late(list[PackedCommands]):
            def __iter__(self) -> Iterator[PackedCommands]:
                if next(touches, None) is not None:
                    rival.hset("fence", "other", "x")
                return super().__iter__()

        transact(pipe, (Condition(b"fence", "token", b"1"),), Late([PackedCommands.of([("INCR", "written")])]))
    assert client.get("written") == b"1"


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[list[Command]]:
    """The commands of each ``PipelineConnection.call``."""
    found: list[list[Command]] = []
    call = PipelineConnection.call

    def noting(pipe: PipelineConnection, commands: Iterable[Command]) -> list[Any]:
        found.append(list(commands))
        return call(pipe, found[-1])

    monkeypatch.setattr(PipelineConnection, "call", noting)
    return found


def test_one_transaction_after_the_other_looks_at_the_fence_once(client: redis.Redis, calls: list[list[Command]]) -> None:
    client.hset("fence", "token", "1")
    store, fence = ServerStore(client), (Condition(b"fence", "token", b"1"),)
    for _ in range(3):
        store.apply(fence, [("INCR", "written")])
        store.ask([("PING",)])
    assert sum(("WATCH", b"fence") in commands for commands in calls) == 1
    client.hset("fence", "token", "2")
    with pytest.raises(StaleWriter):
        store.apply(fence, [("INCR", "written")])
    assert client.get("written") == b"3"


def test_what_was_watched_for_another_fence_does_not_matter(client: redis.Redis) -> None:
    client.hset("fence", mapping={"token": "1", "count": "0"})
    store, token = ServerStore(client), Condition(b"fence", "token", b"1")
    store.apply((token,), [("INCR", "written")])
    store.ask([("HSET", "fence", "count", "1")])
    before = client.info("commandstats")["cmdstat_exec"]["calls"]
    store.apply((token, Condition(b"fence", "count", b"1")), [("INCR", "written")])
    assert client.info("commandstats")["cmdstat_exec"]["calls"] == before + 1
    assert client.get("written") == b"2"


def test_a_fence_that_was_held_is_looked_at_again_by_another_connection(
    client: redis.Redis, calls: list[list[Command]], server: Server
) -> None:
    client.hset("fence", "token", "1")
    with server.client() as own:
        store, fence = ServerStore(own), (Condition(b"fence", "token", b"1"),)
        store.apply(fence, [("INCR", "written")])
        own.connection_pool.disconnect()
        client.hset("fence", "token", "2")
        with pytest.raises(StaleWriter):
            store.apply(fence, [("INCR", "written")])
        client.hset("fence", "token", "1")
        store.apply(fence, [("INCR", "written")])
    assert sum(("WATCH", b"fence") in commands for commands in calls) == 3
    assert client.get("written") == b"2"


def test_a_full_server_is_one_clear_error_and_nothing_of_the_batch_is_written(
    client: redis.Redis, store: Store, run: Run
) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put(*job(0))
        client.config_set("maxmemory", "1")
        with pytest.raises(ServerError, match=r"maxmemory.*--resume"):
            writer.flush()
        client.config_set("maxmemory", "0")
        assert not client.exists("waiting", "job:0")
        writer.close()
    assert client.exists("waiting", "job:0") == 2


def test_send_refuses_a_fallen_fence(client: redis.Redis, store: Store, run: Run) -> None:
    send(store, run, [("SADD", "registry", str(number)) for number in range(1200)])
    client.hset(run.key, "run", "2")
    with pytest.raises(StaleWriter):
        send(store, run, [("SADD", "registry", "late")])
    assert client.scard("registry") == 1200


def test_a_partly_applied_transaction_says_so(client: redis.Redis) -> None:
    client.hset("fence", "token", "1")
    client.set("text", "x")
    commands = [PackedCommands.of([("SET", "other", "1")]), PackedCommands.of([("SET", "third", "1"), ("LPUSH", "text", "y")])]
    with open_pipeline(client) as pipe, pytest.raises(PartlyApplied, match="LPUSH text"):
        transact(pipe, (Condition(b"fence", "token", b"1"),), commands)


# PackedJobs at once


@pytest.mark.parametrize("seed", range(15))
def test_jobs_put_by_themselves_and_many_at_once_are_the_same(
    client: redis.Redis, store: Store, run: Run, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Openers that end anywhere, and put some jobs this way and some that way: each command is applied once."""
    random = Random(seed)
    monkeypatch.setattr(partition_writer, "BATCH_COMMANDS", random.choice([1, 4, 9]))
    monkeypatch.setattr(partition_writer, "BATCH_BYTES", random.choice([50, 1_000]))
    jobs = [
        (b"job %d" % number, [("INCR", f"count:{number}:{index}") for index in range(random.randint(1, 3))])
        for number in range(40)
    ]
    for last in (random.randrange(41), random.randrange(41), 40):
        with open_partition(store, run, "a") as writer:
            at = 0
            while at < last:
                if random.random() < 0.4:
                    assert writer.put(*jobs[at])
                    at += 1
                else:
                    end = random.randint(at + 1, last)
                    assert writer.put_many(None, many(jobs[at:end])) == 0
                    at = end
            if last == 40:
                writer.close()
    counts = {key: client.get(key) for key in client.scan_iter("count:*")}
    assert counts == {words[1].encode(): b"1" for _, commands in jobs for words in commands}


def as_members(jobs: Sequence[tuple[bytes, list[Command]]], rows: Sequence[int]) -> PackedJobs:
    """The same jobs, of which those in these rows become members of their zset together."""
    alone = [(name, commands[:1] if row in rows else commands) for row, (name, commands) in enumerate(jobs)]
    packed, counted = many(alone), many(jobs)
    zadds = [jobs[row][1][1] for row in rows]
    words = [b"".join(b"$%d\r\n%b\r\n" % (len(text), text) for text in (b"%d" % zadd[2], zadd[3].encode())) for zadd in zadds]
    members = PackedMembers(b"waiting", rows, memoryview(b"".join(words)), list(accumulate(map(len, words), initial=0)))
    return evolve(packed, numbers=counted.numbers, members=[members])


@pytest.mark.parametrize("batch", [1, 2, 5, 8, 100])
def test_jobs_become_members_together_or_by_themselves(
    client: redis.Redis, store: Store, run: Run, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partition_writer, "BATCH_COMMANDS", batch)
    jobs = [job(number) for number in range(20)]
    for last in (7, 20):
        with open_partition(store, run, "a") as writer:
            writer.put_many(None, as_members(jobs[:last], [row for row in (0, 1, 2, 6, 7, 11, 18, 19) if row < last]))
            writer.flush()
        assert client.zrange("waiting", 0, -1, withscores=True) == [(b"%d" % number, number) for number in range(last)]
        assert len(client.keys("job:*")) == last


def test_of_many_jobs_those_that_an_earlier_run_has_stored_are_left_out(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as first:
        first.put_many(None, many([job(number) for number in range(5)]))
        first.flush()
    client.hset(run.key, "run", "2")
    client.zrem("waiting", "3")
    for _ in range(2):
        with open_partition(store, Run(run.epoch, 2), "a") as writer:
            found = [writer.put_many(None, many([job(number) for number in numbers])) for numbers in (range(4), range(4, 9))]
            assert found == [4, 1]
            writer.flush()
    assert client.zrange("waiting", 0, -1) == [b"%d" % number for number in range(9) if number != 3]


def test_many_jobs_of_a_source_that_changed_are_refused(client: redis.Redis, store: Store, run: Run) -> None:
    with open_partition(store, run, "a") as writer:
        writer.put_many(None, many([job(0), job(1)]))
        writer.flush()
    with open_partition(store, run, "a") as another, pytest.raises(MigrationRefused, match="source has changed"):
        another.put_many(None, many([job(0), job(5), job(6)]))
    with open_partition(store, run, "a") as again:
        again.put_many(None, many([job(0), job(1)]))
        again.close()
    with open_partition(store, run, "a") as longer, pytest.raises(MigrationRefused, match="source has changed"):
        longer.put_many(None, many([job(0), job(1), job(2)]))
    assert client.zcard("waiting") == 2


def test_a_refused_command_among_many_names_its_key(client: redis.Redis, store: Store, run: Run) -> None:
    client.set("waiting", "a string")
    with open_partition(store, run, "a") as writer:
        writer.put_many(None, many([job(0), job(1)]))
        with pytest.raises(ServerError, match="refuses ZADD waiting: WRONGTYPE"):
            writer.flush()
    client.delete("waiting")
    with open_partition(store, run, "a") as again:
        assert again.put_many(None, many([job(0), job(1)])) == 0
        again.close()
    assert client.zcard("waiting") == 2

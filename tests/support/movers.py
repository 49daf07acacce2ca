"""Movers: threads that move the jobs of a keyspace from place to place as its workers do, one atomic step after the other.

For tests of what is read meanwhile. Every step leaves a sound keyspace.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import redis
from ferryman.compat.kombu.keys import bucket_key, layout
from ferryman.compat.kue.keys import layout as kue_layout
from ferryman.compat.kue.keys import padded
from ferryman.schema.connection.call import run
from ferryman.schema.job import Job, State
from ferryman.schema.native.scripts.queue_scripts import QueueScripts

from .servers import Server

Step = Callable[[], object]

SHARE = 20
"""Jobs that are on the move at once."""


@contextlib.contextmanager
def moving(server: Server, steps: Callable[[redis.Redis], Iterator[Step]]) -> Iterator[Callable[[], int]]:
    """Takes one step after the other for the length of the block; gives a function that counts them."""
    ended, taken, failed = threading.Event(), [0], list[BaseException]()

    def work() -> None:
        try:
            with server.client() as client:
                for step in steps(client):
                    if ended.is_set():
                        return
                    step()
                    taken[0] += 1
        except BaseException as error:
            failed.append(error)
            raise

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield lambda: taken[0]
    finally:
        ended.set()
        thread.join(120)
    assert not failed
    assert not thread.is_alive()


def native(client: redis.Redis, prefix: str, jobs: Sequence[Job]) -> Iterator[Step]:
    """A consumer takes waiting jobs of each queue and gives them back."""
    scripts = QueueScripts(prefix)
    while True:
        for queue in sorted({job.queue for job in jobs if job.state is State.WAITING}):
            yield partial(run, client, scripts.take(queue, "mover", SHARE, 60_000))
            yield partial(run, client, scripts.release(queue, "mover", None))


def kue(client: redis.Redis, prefix: str, jobs: Sequence[Job]) -> Iterator[Step]:
    """Waiting jobs become active, and wait again."""
    names, script = kue_layout(prefix), client.register_script(_KUE)
    waiting = [job for job in jobs if job.state is State.WAITING]
    while True:
        for job in waiting:
            for before, after in (("inactive", "active"), ("active", "inactive")):
                keys = [names.key("record", id=job.id)]
                for state in (before, after):
                    keys += [names.key("by_state", state=state), names.key("by_type", queue=job.queue, state=state)]
                keys.append(names.key("tokens", queue=job.queue))
                yield partial(script, keys, (padded(job.id), after))


_KUE = """
-- KEYS  the hash; by state and by type: where the job stands, and where it goes; the tokens of the type
local score = redis.call('ZSCORE', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[2], ARGV[1])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HSET', KEYS[1], 'state', ARGV[2])
redis.call('ZADD', KEYS[4], score, ARGV[1])
redis.call('ZADD', KEYS[5], score, ARGV[1])
if ARGV[2] == 'active' then redis.call('LPOP', KEYS[6]) else redis.call('LPUSH', KEYS[6], 1) end
"""


def kombu(client: redis.Redis, prefix: str, jobs: Sequence[Job]) -> Iterator[Step]:
    """A consumer takes the messages of each queue's first bucket and puts them back."""
    names, take, back = layout(prefix), client.register_script(_KOMBU_TAKE), client.register_script(_KOMBU_BACK)
    held = (names.key("unacked"), names.key("index"))
    while True:
        for queue in sorted({job.queue for job in jobs if job.state is State.WAITING}):
            keys = (bucket_key(prefix, queue, 0), *held)
            yield partial(take, keys, (SHARE, time.time()))
            yield partial(back, keys)


_KOMBU_TAKE = """
-- KEYS  the list of a bucket, the hash and the index of unacked messages
for _ = 1, ARGV[1] do
  local text = redis.call('RPOP', KEYS[1])
  if not text then return end
  local message = cjson.decode(text)
  local tag, info = message.properties.delivery_tag, message.properties.delivery_info
  local delivery = '[' .. text .. ', ' .. cjson.encode(info.exchange) .. ', ' .. cjson.encode(info.routing_key) .. ']'
  redis.call('HSET', KEYS[2], tag, delivery)
  redis.call('ZADD', KEYS[3], ARGV[2], tag)
  redis.call('HSET', 'test:taken', tag, text)
end
"""

_KOMBU_BACK = """
for _, tag in ipairs(redis.call('HKEYS', 'test:taken')) do
  redis.call('RPUSH', KEYS[1], redis.call('HGET', 'test:taken', tag))
  redis.call('HDEL', KEYS[2], tag)
  redis.call('ZREM', KEYS[3], tag)
end
redis.call('DEL', 'test:taken')
"""

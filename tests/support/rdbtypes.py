"""Keys of every type in every encoding that a server writes to a snapshot file, those that are no data of any queue included."""

from __future__ import annotations

from pathlib import Path

import redis
from ferryman.migrations.rdb_layout import END
from ferryman.migrations.rdbfile import HEADER, RdbFile

LIBRARY = "#!lua name=sums\nredis.register_function('double', function(keys, args) return 2 * args[1] end)"
LONG = "a value longer than the longest that is packed with others into one listpack, by the defaults of all servers"


def fill_types(client: redis.Redis) -> None:
    """Every type that the server knows, small and large; of expiring fields only some that stay for a day."""
    client.mset({"number": 12345, "large number": 10**15, "text": "abc", "repeated": "ab" * 500, "": "a key without a name"})
    client.set("expiring", "x", ex=86_400)
    client.rpush("list", *range(5))
    client.rpush("long list", *(f"item {number}" for number in range(3000)), "x" * 20_000, LONG)
    client.sadd("numbers", *range(5))
    client.sadd("large numbers", *(10**12 + number for number in range(3)))
    client.sadd("set", "a", "b", 3)
    client.sadd("long set", *(f"member {number}" for number in range(600)), LONG)
    client.zadd("zset", {"a": 1, "b": 2.5, "c": float("inf")})
    client.zadd("long zset", {f"member {number}": number / 7 for number in range(600)} | {LONG: -1e300})
    client.hset("hash", mapping={"a": 1, "b": "text", "c": 10**12, "d": -70_000})
    client.hset("long hash", mapping={f"field {number}": number for number in range(600)} | {"long": LONG})
    client.pfadd("cardinality", *range(100))
    client.geoadd("places", (13.36, 38.11, "Palermo"))
    client.setbit("bits", 70_000, 1)
    for number in range(300):
        client.xadd("stream", {"number": number, "text": "x" * 50})
    client.xgroup_create("stream", "group", 0)
    client.xreadgroup("group", "consumer", {"stream": ">"}, count=10)
    client.xdel("stream", client.xrange("stream", count=1)[0][0])
    if knows(client, "FUNCTION"):
        client.function_load(LIBRARY)
    if knows(client, "VADD"):
        client.execute_command("VADD", "vectors", "VALUES", 3, 1, 2, 3, "element")
    if knows(client, "HPEXPIRE"):
        fill_expiring(client, 86_400_000)


def fill_expiring(client: redis.Redis, ms: int) -> None:
    """Hashes in each encoding, of whose fields some, or all, expire in so many ms."""
    client.hset("packed", mapping={"stays": 1, "goes": "x", "number": 10**12, "last": "y"})
    client.execute_command("HPEXPIRE", "packed", ms, "FIELDS", 2, "goes", "number")
    client.hset("packed and pressed", mapping={f"a name of some length {number}": "aaaa" * 10 for number in range(60)})
    client.execute_command("HPEXPIRE", "packed and pressed", ms, "FIELDS", 1, "a name of some length 7")
    client.hset("plain", mapping={"stays": LONG, "goes": LONG, "number": 7, "-1": -1})
    client.execute_command("HPEXPIRE", "plain", ms, "FIELDS", 2, "goes", "-1")
    for name, value in (("packed, goes", "x"), ("plain, goes", LONG)):
        client.hset(name, mapping={"a": value, "b": 1})
        client.execute_command("HPEXPIRE", name, ms, "FIELDS", 2, "a", "b")


def knows(client: redis.Redis, command: str) -> bool:
    """Whether the server has a command."""
    try:
        client.execute_command(command)
    except redis.exceptions.ResponseError as error:
        return "unknown command" not in str(error).lower()
    return True


def codes(path: Path) -> set[int]:
    """The type codes of the records in a file, and of its remarks."""
    found, at = set(), HEADER
    with RdbFile(path) as file:
        while file.data[at] != END:
            found.add(file.dialect.head(file.data, at)[0])
            at = file.dialect.record(file.data, at)
    return found

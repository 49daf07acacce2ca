"""The hash that a job gets when it is taken: the SHA-1 of its arguments as JavaScript writes what Lua has written.

The second column is what Node.js 20 prints for what a server gives it. Captures of bee itself: test_captures.py.
"""

from __future__ import annotations

from hashlib import sha1

import pytest
from ferryman.schema.connection.call import run
from ferryman.schema.live import NewJob

from .served import ANN, Keyspace, T

pytestmark = pytest.mark.in_turn

WRITTEN = [
    ("[]", "{}"),
    ('["text"]', '["text"]'),
    ("[[],{}]", "[{},{}]"),
    ("[null,true,false]", "[null,true,false]"),
    ('["a/b"]', '["a/b"]'),
    ('["\\u007f\\u0001\\b\\n\\"\\\\"]', '["\x7f\\u0001\\b\\n\\"\\\\"]'),
    ('["日本\\u2028"]', '["日本\u2028"]'),
    ("[0,-0,1.0]", "[0,0,1]"),
    ("[12345678901234567]", "[12345678901235000]"),
    ("[1e15,1e20,1e21,1e22]", "[1000000000000000,100000000000000000000,1e+21,1e+22]"),
    ("[-1.5e300]", "[-1.5e+300]"),
    ("[0.1,0.30000000000000004]", "[0.1,0.3]"),
    ("[0.000001,0.0000001,-2.25e-9]", "[0.000001,1e-7,-2.25e-9]"),
    ("[123456.789,1795264956046]", "[123456.789,1795264956046]"),
    ('[{"b":1}]', '[{"b":1}]'),
    ('[{"10":1,"2":2,"0":3}]', '[{"0":3,"2":2,"10":1}]'),
    ('[{"x":[{"y":{}}]}]', '[{"x":[{"y":{}}]}]'),
]


@pytest.mark.parametrize(("arguments", "written"), WRITTEN)
def test_arguments_are_hashed_as_javascript_writes_them(bee: Keyspace, arguments: str, written: str) -> None:
    jid = run(bee.client, bee.live.put(NewJob("mail", arguments.encode()), now=T))
    assert bee.ids() == [jid]
    assert bee.field(jid, "hash") == sha1(written.encode()).hexdigest()
    assert bee.client.lrange(f"bee:l:hashes:mail:{bee.field(jid, 'hash')}", 0, -1) == [jid.encode()]


def test_a_job_that_has_a_hash_keeps_it(bee: Keyspace) -> None:
    bee.put("a", retryDelay=0)
    bee.client.hset("bee:h:jobs:a", "hash", "mine")
    assert bee.ids() == ["a"]
    assert bee.field("a", "hash") == "mine"


def test_very_long_arguments_are_not_hashed(bee: Keyspace) -> None:
    bee.put("a", ["x" * 70_000])
    bee.put("b", ["x" * 70_000])
    assert bee.ids(n=2) == ["a", "b"]
    assert bee.field("a", "hash") is None
    assert bee.send(bee.live.complete("mail", ANN, [("a", None), ("b", None)], now=T)) == ("completed", "completed")

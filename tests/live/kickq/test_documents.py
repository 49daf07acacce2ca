"""Documents of any content come through a run with every byte that the run says nothing about."""

from __future__ import annotations

import json
from typing import Any

import redis
from ferryman.compat.kickq.client import KickqClient
from ferryman.compat.members import split, stringify
from ferryman.schema.live import Failure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...models.kickq_original import new_item
from ...support.effort import examples
from ...support.servers import Server

T0 = 1_800_000_000_000
TOUCHED = {"complete", "success", "updateTime", "finishTime", "totalProcessTime", "lastError", "scheduledFor", "state", "runs"}
NAMES = ("lastError", "data", "runs", "id", "own", '"', "\\", "ü", "{", "]", "")

texts = st.text(max_size=20) | st.sampled_from(['","lastError":null}', "\ud800", '\\",', "]}", "\u2028", "\x00"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | texts, inner, max_size=4),
    max_leaves=12,
)
runs = st.lists(
    st.fixed_dictionaries({"count": st.integers(1, 3), "state": st.sampled_from(["fail", "ghost"]), "error": values}), max_size=2
)


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """A document of job x: short or long, in any order, with members that kickq does not know, and spaces here and there."""
    members: dict[str, Any] = {"id": "x", "name": "mail", "createTime": T0, "data": draw(values), "retry": draw(st.booleans())}
    members |= draw(
        st.fixed_dictionaries({}, optional={"lastError": values, "runs": runs, "own": values, "processTimeout": values})
    )
    if draw(st.booleans()):
        members["data"] = [members["data"], "x" * 17_000]
    if draw(st.booleans()):
        # As kickq saves it.
        whole = new_item("x", "mail", None, T0, None, {})
        return stringify({name: members.get(name, value) for name, value in whole.items()} | {"own": members.get("own")})
    chosen = {name: members[name] for name in draw(st.permutations(list(members)))}
    if draw(st.booleans()):
        return stringify(chosen)
    text = json.dumps(chosen, indent=draw(st.sampled_from([None, 1])), ensure_ascii=draw(st.booleans()))
    return text.encode("utf-8", "surrogatepass") if text.isascii() else stringify(chosen)


def test_a_run_leaves_every_member_as_it_was_that_it_does_not_speak_of(any_server: Server) -> None:
    with any_server.client(db=8) as client:
        client.flushdb()
        _holds_for_any_document(client)


def _holds_for_any_document(client: redis.Redis) -> None:
    @settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
    @given(documents(), st.sampled_from(["fail", "complete", "requeue"]))
    def check(document: bytes, end: str) -> None:
        client.flushdb()
        client.hset("kickq:job:x", mapping={"itemData": document, "state": "new"})
        client.rpush("kickq:queue:mail", "x")
        kickq = KickqClient(client)
        before = split(document)
        (job,) = kickq.take("mail", now=T0)
        assert job.payload == before["data"].text
        match end:
            case "fail":
                assert kickq.fail(job, Failure("no", is_final=True), now=T0 + 1) == "failed"
            case "complete":
                assert kickq.complete(job, now=T0 + 1) == "completed"
            case _:
                assert kickq.requeue(job, now=T0 + 1)
                assert client.hget("kickq:job:x", "itemData") == document
                return
        raw = client.hget("kickq:job:x", "itemData")
        assert raw is not None
        after = split(raw)
        assert {n: m for n, m in after.items() if n in before and n not in TOUCHED} == {
            n: m for n, m in before.items() if n not in TOUCHED
        }
        ran = before["runs"].value if "runs" in before else []
        assert after["runs"].value[:-1] == ran
        assert after["runs"].value[-1]["count"] == len(ran) + 1
        if end == "complete" and "lastError" in before:
            assert after["lastError"] == before["lastError"]
        assert after["state"].value == {"fail": "fail", "complete": "success"}[end]
        kickq.close()

    check()

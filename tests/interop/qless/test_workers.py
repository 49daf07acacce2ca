"""The workers of qless and reqless as ferryman tells them: as the systems themselves do, and without forgetting anybody."""

from __future__ import annotations

import html
import json
import re

import pytest
import redis
from ferryman.compat.qless.live import Core
from ferryman.operations.workers import workers
from ferryman.schema.connection.address import Address
from ferryman.schema.workers import MOST_JOBS, HeldJob, Worker

from ...support.foreign_keys import seen
from ...support.servers import Server
from ...support.webpage import web_page
from .cores import PACKAGES, Original
from .tellers import OriginalTeller
from .test_fleet import awaited, originals

pytestmark = pytest.mark.in_turn

NOW = 1_795_000_000_000
LOCK_MS = 60_000


def told(server: Server, first: int = 0, limit: int = 200) -> tuple[Worker, ...]:
    found = workers(Address.parse(server.url(family="qless")), first, limit)
    assert found is not None
    return found.page.workers


@pytest.mark.parametrize("core", PACKAGES)
def test_each_worker_with_what_it_holds_its_first_lock_and_its_last_word(server: Server, client: redis.Redis, core: Core) -> None:
    original = OriginalTeller(Original(client, core))
    for n in range(3):
        original.put(NOW + n, "mail" if n else "video", f"job-{n}", {})
    assert original.pop(NOW + 1000, "video", "ann", 1) == ["job-0"]
    assert original.pop(NOW + 4000, "mail", "ann", 1) == ["job-1"]
    assert original.pop(NOW + 7000, "none", "bob", 1) == []
    ann = Worker(
        "ann",
        NOW + 4000,
        2,
        (HeldJob("job-0", "video", NOW + 1000 + LOCK_MS), HeldJob("job-1", "mail", NOW + 4000 + LOCK_MS)),
    )
    assert told(server) == (Worker("bob", NOW + 7000, 0), ann)
    assert told(server, 1, 1) == (ann,)
    assert ann.first_lock_ends_ms == NOW + 1000 + LOCK_MS
    assert original.complete(NOW + 9000, "video", "ann", "job-0", {}) == "done"
    assert [(each.name, each.held) for each in told(server)] == [("bob", 0), ("ann", 1)]
    theirs = {row["name"]: row["jobs"] + row["stalled"] for row in json.loads(original.core("workers", NOW + 9000))}
    assert theirs == {each.name: each.held for each in told(server)}


@pytest.mark.parametrize("core", PACKAGES)
def test_looking_changes_nothing_and_forgets_nobody(server: Server, client: redis.Redis, core: Core) -> None:
    original = OriginalTeller(Original(client, core))
    original.put(NOW, "mail", "job", {})
    original.pop(NOW, "mail", "silent", 1)
    original.pop(NOW + 100_000_000, "mail", "silent no more", 0)
    before = seen(client)
    assert [each.name for each in told(server)] == ["silent no more", "silent"]
    assert seen(client) == before


def test_a_job_that_is_gone_and_a_lock_without_an_end_are_told_as_they_stand(server: Server, client: redis.Redis) -> None:
    client.zadd("ql:workers", {"odd": "inf", "empty": 0})
    client.zadd("ql:w:odd:jobs", {f"gone-{n:02}": "inf" for n in range(MOST_JOBS + 3)})
    client.set("ql:w:empty:jobs", "no list of jobs")
    odd, empty = told(server)
    assert (odd.last_seen_ms, odd.held, len(odd.jobs)) == (None, MOST_JOBS + 3, MOST_JOBS)
    assert odd.jobs[0] == HeldJob("gone-00", None, None)
    assert empty == Worker("empty", 0, 0)


def test_a_register_of_a_wrong_type_and_an_empty_keyspace_have_no_workers(server: Server, client: redis.Redis) -> None:
    assert told(server) == ()
    client.set("ql:workers", "text")
    assert told(server) == ()


@pytest.mark.parametrize("family", ["ferryman", "kue", "kickq"])
def test_a_system_without_a_list_of_workers_has_none(server: Server, family: str) -> None:
    assert workers(Address.parse(server.url(family=family))) is None


def test_the_page_shows_a_real_worker_of_reqless_while_it_works(server: Server, client: redis.Redis) -> None:
    now = int(client.time()[0]) * 1000
    deed = json.dumps({"n": 1, "do": "sleep", "seconds": 600, "next": ""})
    Original(client, "reqless")("put", now, "", "mail", "long", "worker_process.Deed", deed, 0)
    with originals(server, "reqless", 1), web_page(server.url()) as page:
        awaited(lambda: server.client(1).llen("begun"))
        shown = page.text("/consumers", family="qless", prefix="ql")
    text = re.sub(r"<[^>]+>", " ", html.unescape(shown))
    assert "Workers of qless" in text
    assert re.search(r"original-0\s+\d+(?:\.\d)? (?:ms|s|min).* ago\s+1\s+\d+ (?:s|min).*\s+long", text), text
    assert 'href="/job?family=qless&amp;prefix=ql&amp;queue=mail&amp;id=long"' in shown


def test_hostile_names_of_workers_stay_text_and_many_have_pages(server: Server, client: redis.Redis) -> None:
    hostile = "<script>alert(1)</script>\x1b[31m\u202e"
    client.zadd("ql:workers", {hostile: NOW / 1000} | {f"worker-{n}": n for n in range(250)})
    with web_page(server.url()) as page:
        first = page.text("/consumers", family="qless", prefix="ql")
        second = page.text("/consumers", family="qless", prefix="ql", page=2)
        beyond = page.text("/consumers", family="qless", prefix="ql", page=9)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in first
    assert "<script>alert" not in first
    assert not {"\x1b", "\u202e"} & set(first)
    assert "251 in the system" in first
    assert "worker-249" in first
    assert "worker-0<" not in first
    assert "worker-0<" in second
    assert "There are fewer workers." in beyond

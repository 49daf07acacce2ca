"""Jobs by id, by task and by what they carry: the jobs that whoever reads the whole keyspace finds."""

from __future__ import annotations

import json
import time

import pytest
import redis
from ferryman.migrations.local import LocalEngine
from ferryman.operations.lookup import lookup
from ferryman.operations.search import SearchCursor, search
from ferryman.schema.connection.address import Address
from ferryman.schema.connection.call import run
from ferryman.schema.errors import UsageError
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.live import NewJob
from ferryman.schema.native.keys import DEFAULT_PREFIX
from ferryman.schema.steering import JobFilter
from ferryman.testing.keyspaces import store

from ..support.command import ferryman
from ..support.families import GENERATING
from ..support.mending import NOW
from ..support.servers import Server

pytestmark = pytest.mark.in_turn


def fill(server: Server, client: redis.Redis, name: str, jobs: int = 300) -> tuple[Address, list[Job]]:
    family = get_family(name)
    store(client, family, family.default_prefix, list(family.generate(jobs, 5, NOW)), NOW)
    address = Address.parse(server.url(family=name))
    return address, list(LocalEngine().jobs(address, NOW))


@pytest.mark.parametrize("name", GENERATING)
def test_a_job_is_found_by_its_id_or_it_is_said_that_all_must_be_read(server: Server, client: redis.Redis, name: str) -> None:
    address, jobs = fill(server, client, name)
    for job in jobs[::17]:
        found = lookup(address, [job.id], now_ms=NOW)
        assert found is not None
        if found.missing:
            assert found.must_scan
            assert name == "kombu"
            assert job.state is not State.ACTIVE
            continue
        alike = [each for each in jobs if each.id == job.id]
        assert {(each.job.queue, each.job.state, each.job.payload) for each in found.jobs} == {
            (each.queue, each.state, each.payload) for each in alike
        }
        assert all(each.facts for each in found.jobs)
    nobody = lookup(address, ["nobody"], now_ms=NOW)
    assert nobody is not None
    assert nobody.missing == ("nobody",)


@pytest.mark.parametrize("name", ["kue", "qless"])
def test_a_foreign_job_is_found_by_the_id_of_its_task(server: Server, client: redis.Redis, name: str) -> None:
    family = get_family(name)
    live = family.live(family.default_prefix, DEFAULT_PREFIX)
    assert live is not None
    job_id = run(client, live.put(NewJob("mail", b"{}", "Klass" if live.has_names else None)))
    own = f"{family.default_prefix}:{job_id}"
    found = lookup(Address.parse(server.url(family=name)), [own])
    assert found is not None
    assert [each.job.id for each in found.jobs] == [job_id]
    if live.takes_ids:  # a job has the id of its task
        return
    extra = json.dumps({"id": "a-task", "task": "shop.send"}).encode()
    other = run(client, live.put(NewJob("mail", b"{}", "Klass" if live.has_names else None, extra=extra)))
    found = lookup(Address.parse(server.url(family=name)), ["a-task"], ["mail"])
    assert found is not None
    assert [(each.job.id, each.task_id) for each in found.jobs] == [(other, "a-task")]


def test_a_search_finds_what_fits_page_by_page(server: Server, client: redis.Redis) -> None:
    address, jobs = fill(server, client, "ferryman", 600)
    task = next(job.name for job in jobs if job.state is State.WAITING and job.name)
    wanted = {(job.queue, job.id) for job in jobs if job.name == task and job.state is not State.UNKNOWN}
    seen: list[tuple[str, str]] = []
    after = None
    for _ in range(len(jobs)):
        found = search(address, JobFilter(task=task), 7, after=after, now_ms=NOW)
        assert found is not None
        assert len(found.jobs) <= 7
        seen += [(job.queue, job.id) for job in found.jobs]
        if found.next is None:
            break
        after = SearchCursor.parse(str(found.next))
    assert len(seen) == len(set(seen))
    assert set(seen) == wanted


def test_a_search_ends_after_a_bounded_number_of_jobs(
    server: Server, client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferryman.operations.search.MOST_LOOKED_AT", 25)
    address, _ = fill(server, client, "kue")
    found = search(address, JobFilter(text=b"no payload has this"), 10, now_ms=NOW)
    assert found is not None
    assert (found.jobs, found.looked_at) == ((), 25)
    assert found.next is not None


def test_a_family_without_indexes_says_that_all_must_be_read(server: Server) -> None:
    assert search(Address.parse(server.url(family="kickq")), JobFilter(task="x"), 5) is None
    assert lookup(Address.parse("ferryman+rdb:///dump.rdb?family=kue"), ["1"]) is None


@pytest.mark.parametrize("text", ["", "waiting", "nothing:0-0+0:mail", "waiting:0-0:mail", "waiting:a-b+c:mail"])
def test_what_is_no_cursor_of_a_search_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="no cursor"):
        SearchCursor.parse(text)


def test_the_command_shows_the_whole_story_of_a_job(server: Server, client: redis.Redis) -> None:
    now_ms = round(time.time() * 1000)
    family = get_family("kue")
    store(client, family, "q", list(family.generate(100, 5, now_ms)), now_ms)
    job = next(iter(LocalEngine().jobs(Address.parse(server.url(family="kue")), now_ms)))
    (line,) = ferryman("jobs", server.url(family="kue"), "--id", job.id, "--format", "json").lines()
    assert (line["id"], line["queue"]) == (job.id, job.queue)
    assert f"q:job:{job.id}" in {each["key"] for each in line["keys"]}
    table = ferryman("jobs", server.url(family="kue"), "--id", job.id)
    assert table.status == 0
    assert f"q:job:{job.id} (hash" in table.stdout
    missing = ferryman("jobs", server.url(family="kue"), "--id", "999999", "--format", "json")
    assert (missing.status, missing.stdout) == (1, "")
    assert "999999" in missing.error


def test_the_command_finds_by_reading_everything_where_it_is_told_to(server: Server, client: redis.Redis) -> None:
    _, jobs = fill(server, client, "kombu")
    job = next(job for job in jobs if job.state is State.WAITING)
    url = server.url(family="kombu")
    assert "--scan" in ferryman("jobs", url, "--id", job.id, "--format", "json").error
    (line,) = ferryman("jobs", url, "--id", job.id, "--scan", "--format", "json").lines()
    assert line["id"] == job.id


@pytest.mark.parametrize("name", ["kue", "kickq", "ferryman"])
def test_the_command_filters_by_text(server: Server, client: redis.Redis, name: str) -> None:
    _, jobs = fill(server, client, name)
    payload = next(job.payload for job in jobs if job.payload is not None and job.payload.isascii() and len(job.payload) > 12)
    text = payload[:12].decode()
    lines = ferryman("jobs", server.url(family=name), "--text", text, "--limit", "100000", "--format", "json").lines()
    assert {line["id"] for line in lines} == {job.id for job in jobs if job.payload and text.encode() in job.payload}


@pytest.mark.parametrize(
    "words", [("--scan",), ("--id", "1", "--task", "x"), ("--id", "1", "--newest"), ("--task", "x", "--after", "rubbish")]
)
def test_the_command_refuses_options_that_do_not_go_together(server: Server, words: tuple[str, ...]) -> None:
    outcome = ferryman("jobs", server.url(family="kue"), *words)
    assert outcome.status == 2
    assert outcome.error

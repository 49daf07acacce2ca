"""The mapping file: which task a job is, and which job a task."""

from __future__ import annotations

import json
import re

import pytest
from ferryman.schema.errors import MalformedValue, UsageError
from ferryman.schema.live import ForeignDelivery
from ferryman.schema.native.scripts.publication import Publication
from ferryman.transport.live import mapping
from ferryman.transport.live.mapping import IDENTITY, JobMapping, QueueMapping, load, parse
from ferryman.transport.live.messages import JobMessages
from ferryman.transport.message import Content

from ..support.live_systems import SYSTEMS

SYSTEM = {system.family: system for system in SYSTEMS}
WHOLE = """
[queue.mail]
tasks = { mail = "shop.send", "mail:old" = "shop.send" }
args = "kwargs"
except = ["audit"]
attempts = 3
backoff = { type = "fixed", delay = 1000 }

[queue."*"]
only = ["a", "b"]
"""


def split(payload):
    """A function of a user's own, as a mapping file may name it."""
    return [payload["first"]], {"rest": payload["rest"]}


split.payload = lambda args, kwargs: {"first": args[0], "rest": kwargs["rest"]}


def messages(family: str, mapped: JobMapping = IDENTITY) -> JobMessages:
    return JobMessages(SYSTEM[family].live, mapped, "ascending")


def published(given: JobMessages, queue, task, args, kwargs=None, **headers):
    body = json.dumps([args, kwargs or {}, {}]).encode()
    found = Content(body, "application/json", "utf-8", {"task": task, "id": "u", **headers}, {})
    return given.new_job(queue, found, Publication("p-1", b""), "p-1")


def delivered(given: JobMessages, queue, payload, extra=None, name=None, tasks=None, **more):
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    text = None if extra is None else json.dumps(extra).encode()
    job = ForeignDelivery("7", 0, 0, 1, {}, queue=queue, name=name, payload=raw, extra=text, **more)
    return given.content(queue, job, "consumer", tasks)


def call(found):
    args, kwargs, _ = json.loads(found.body)
    return found.headers["task"], args, kwargs


def test_a_file_says_all_that_there_is_to_say_of_each_queue(tmp_path):
    path = tmp_path / "mapping.toml"
    path.write_text(WHOLE)
    found = load(str(path))
    mail = found.of("mail")
    assert mail.tasks == {"mail": "shop.send", "mail:old": "shop.send"}
    assert (mail.args, mail.excluded, mail.only) == ("kwargs", {"audit"}, None)
    assert mail.options == {"attempts": 3, "backoff": {"type": "fixed", "delay": 1000}}
    assert found.of("any other").only == {"a", "b"}
    path.write_text("[queue.mail]\nonly = ['x']\n")
    assert load(str(path)).of("mail").only == {"x"}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a = [", "m: not TOML: "),
        ("[jobs.mail]\n", "m:1: unknown table [jobs]; each queue has one"),
        ("queue = 3\n", "m:1: queue must be tables"),
        ("[queue]\nmail = 3\n", "queue.mail must be a table"),
        ("[queue.mail]\n\ncolour = 1\n", "m:3: [queue.mail] colour is unknown; known are: tasks, args, only"),
        ("[queue.mail]\ntasks = 3\n", "m:2: [queue.mail] tasks must be a table of names"),
        ("[queue.mail]\ntasks = { a = 3 }\n", "m:2: [queue.mail] tasks has 3 for 'a'"),
        ("[queue.mail]\nargs = 'payloads'\n", "m:2: [queue.mail] args is 'payloads'; it must be"),
        ("[queue.mail]\nargs = 'no_such_module:f'\n", "m:2: [queue.mail] args names 'no_such_module:f', which can't be imported"),
        ("[queue.mail]\nargs = 'json:no_such'\n", "which can't be imported"),
        ("[queue.mail]\nargs = 'json:__name__'\n", "which is no function"),
        ("[queue.mail]\nonly = 'mail'\n", "m:2: [queue.mail] only must be a list of names"),
        ("[queue.mail]\nonly = []\nexcept = []\n", "m:3: [queue.mail] except can't stand beside only"),
        ("[queue.mail]\nattempts = 0\n", "m:2: [queue.mail] attempts is 0"),
        ("[queue.mail]\nbackoff = 'soon'\n", "m:2: [queue.mail] backoff is 'soon'"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_its_line_table_and_key(text, error):
    with pytest.raises(UsageError, match=re.escape(error)):
        parse(text, "m")


def test_a_file_that_is_not_there_or_is_no_text_is_an_error_that_names_it(tmp_path):
    with pytest.raises(UsageError, match=r"none\.toml can't be read: No such file"):
        load(str(tmp_path / "none.toml"))
    (tmp_path / "bytes.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"bytes\.toml is not UTF-8"):
        load(str(tmp_path / "bytes.toml"))


def test_tasks_names_and_payloads_are_mapped_in_both_directions():
    given = messages("kue", JobMapping({"mail": QueueMapping({"mail": "shop.send"}, args="kwargs")}))
    assert call(delivered(given, "mail", {"to": "a"})) == ("shop.send", [], {"to": "a"})
    job = published(given, "mail", "shop.send", [], {"to": "a"})
    assert json.loads(job.payload) == {"to": "a"}
    assert json.loads(published(given, "mail", "shop.send", [1]).payload) == {"task": "shop.send", "args": [1], "kwargs": {}}
    assert "args" in json.loads(published(given, "mail", "mail", [], {"to": "a"}).payload)


def test_keyword_arguments_are_the_only_argument_where_a_payload_is_a_list_of_them():
    given = messages("bee", JobMapping({"mail": QueueMapping({"mail": "shop.send"}, args="kwargs")}))
    assert call(delivered(given, "mail", [{"to": "a"}])) == ("shop.send", [], {"to": "a"})
    assert json.loads(published(given, "mail", "shop.send", [], {"to": "a"}).payload) == [{"to": "a"}]


def test_a_name_of_a_jobs_own_is_mapped():
    given = messages("qless", JobMapping({"mail": QueueMapping({"Send": "shop.send"})}))
    job = published(given, "mail", "shop.send", [{"to": "a"}])
    assert (job.name, json.loads(job.payload)) == ("Send", {"to": "a"})
    assert call(delivered(given, "mail", {"to": "a"}, name="Send")) == ("shop.send", [{"to": "a"}], {})
    assert published(given, "mail", "other", [1]).name == "other"


def test_a_function_of_the_users_reads_and_writes_payloads():
    given = messages("kue", parse(f"[queue.mail]\nargs = '{__name__}:split'\n"))
    assert call(delivered(given, "mail", {"first": 1, "rest": 2})) == ("mail", [1], {"rest": 2})
    assert json.loads(published(given, "mail", "mail", [1], {"rest": 2}).payload) == {"first": 1, "rest": 2}
    with pytest.raises(MalformedValue, match="the mapping's function can't read its payload: KeyError"):
        delivered(given, "mail", {})
    with pytest.raises(UsageError, match="the mapping's function can't make a payload for task 'mail': IndexError"):
        published(given, "mail", "mail", [])


def test_a_function_that_can_only_read_leaves_publishing_to_envelopes():
    given = messages("kue", parse("[queue.mail]\nargs = 'json:loads'\n"))
    assert json.loads(published(given, "mail", "mail", [1]).payload)["args"] == [1]


def test_attempts_and_backoff_go_with_published_jobs():
    given = messages("kue", parse("[queue.mail]\nattempts = 3\nbackoff = true\n"))
    assert published(given, "mail", "mail", [1]).options == {"attempts": 3, "backoff": True}
    assert published(given, "other", "mail", [1]).options == {}


def test_a_worker_takes_what_it_knows_by_task_by_name_and_by_the_names_that_are_mapped_to_it():
    plain = mapping.PLAIN
    assert plain.known({"a", "b"}, "q", has_names=True) == {"a", "b"}
    assert plain.known(None, "q", has_names=True) is None
    mapped = QueueMapping({"Send": "shop.send", "a": "not.known"})
    assert mapped.known({"a", "shop.send"}, "q", has_names=True) == {"Send", "shop.send"}
    assert QueueMapping(only=frozenset({"a"})).known({"a", "b"}, "q", has_names=True) == {"a"}
    assert QueueMapping(excluded=frozenset({"a"})).known({"a", "b"}, "q", has_names=True) == {"b"}
    assert QueueMapping(excluded=frozenset({"q"})).known(None, "q", has_names=False) == set()


@pytest.mark.parametrize("system", SYSTEMS, ids=str)
@pytest.mark.parametrize(
    ("task", "args", "kwargs"),
    [
        ("mail", [{"to": "ä"}], {}),
        ("mail", [], {}),
        ("mail", [1, 2.5, None], {}),
        ("mail", [[1, 2]], {}),
        ("mail", ["text"], {"k": "v"}),
        ("shop.send", [{"to": 1}], {}),
        ("mail", [{"task": "x", "args": [], "kwargs": {}}], {}),
        ("mail", [[{"task": "x", "args": [], "kwargs": {}}]], {}),
    ],
)
def test_every_call_comes_back_from_the_job_that_it_became(system, task, args, kwargs):
    if system.live.carries_messages:
        pytest.skip("whole messages")
    given = messages(system.family)
    job = published(given, "mail", task, args, kwargs)
    found = delivered(given, "mail", job.payload, json.loads(job.extra), name=job.name)
    assert call(found) == (task, args, kwargs)
    assert found.headers["id"] == "u"


def test_all_that_celery_knows_of_a_task_comes_back():
    given = messages("kue")
    headers = {
        "root_id": "r",
        "parent_id": "p",
        "group": "g",
        "expires": "2030-01-01T00:00:00+00:00",
        "timelimit": [9, 5],
        "own": 1,
    }
    embed = {"callbacks": [{"task": "next"}], "errbacks": None, "chain": [{"task": "then"}], "chord": {"task": "all"}}
    body = json.dumps([[1], {}, embed]).encode()
    found = Content(
        body, "application/json", "utf-8", {"task": "t", "id": "u", **headers}, {"reply_to": "r", "correlation_id": "c"}
    )
    job = given.new_job("mail", found, Publication("p-1", b""), "p-1")
    back = delivered(given, "mail", job.payload, json.loads(job.extra))
    assert {name: back.headers[name] for name in headers} == headers
    assert json.loads(back.body)[2] == embed
    assert (back.properties["reply_to"], back.properties["correlation_id"]) == ("r", "c")
    assert back.properties["ferryman_consumer"] == "consumer"


def test_the_limit_of_a_run_is_the_tasks_hard_time_limit():
    given = messages("kue")
    assert delivered(given, "mail", 1, time_limit_ms=1500).headers["timelimit"] == [1.5, None]
    assert delivered(given, "mail", 1, {"headers": {"timelimit": [9, 5]}}, time_limit_ms=1500).headers["timelimit"] == [1.5, 5]
    assert delivered(given, "mail", 1, {"headers": {"timelimit": [1, None]}}, time_limit_ms=1500).headers["timelimit"] == [
        1,
        None,
    ]


def test_an_envelope_that_celery_did_not_publish_is_opened_by_workers_that_know_its_task():
    given, envelope = messages("kue"), {"task": "shop.send", "args": [1], "kwargs": {}}
    assert call(delivered(given, "mail", envelope, tasks={"shop.send"})) == ("shop.send", [1], {})
    assert call(delivered(given, "mail", envelope, tasks={"mail"})) == ("mail", [envelope], {})


@pytest.mark.parametrize("payload", [b"", b"{", b"\xff", b"NaN", b"[" * 1000])
def test_a_payload_that_is_no_json_is_malformed(payload):
    with pytest.raises(MalformedValue):
        delivered(messages("kue"), "mail", payload)


@pytest.mark.parametrize("extra", [{"headers": 3}, {"properties": [1]}, {"embed": "x"}])
def test_what_stands_beside_a_job_and_makes_no_sense_is_malformed(extra):
    with pytest.raises(MalformedValue):
        delivered(messages("kue"), "mail", 1, extra)


def test_priorities_of_a_system_without_any_are_ignored_with_one_warning(caplog):
    given = messages("kickq")
    body = Content(b"[[1],{},{}]", "application/json", "utf-8", {"task": "t", "id": "u"}, {"priority": 5})
    for _ in range(2):
        given.new_job("mail", body, Publication("p-1", b""), "p-1")
    said = [record for record in caplog.records if "priorities are ignored" in record.getMessage()]
    assert len(said) <= 1

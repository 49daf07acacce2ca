"""Reports of audits and comparisons: the same numbers in every format, pages on which nothing from Redis can do harm, and no
report that is not whole."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import redis
from attrs import define, field
from ferryman.cli.audit_page import doubts
from ferryman.cli.report import Outcome, Reports, open_reports
from ferryman.migrations.engine import AGES, OLDER, UNDATED, Census, Difference, age_of
from ferryman.migrations.engine.tables import DIFFERENCES, FINDINGS
from ferryman.schema.family import get_family
from ferryman.schema.job import Job, State
from ferryman.schema.rule import Finding, Severity
from ferryman.schema.text import show
from ferryman.testing.keyspaces import store

from ..support.captures import Capture, capture, load
from ..support.command import Outcome as Run
from ..support.command import ferryman
from ..support.mounts import mounted
from ..support.servers import Server

pytestmark = pytest.mark.in_turn

VOID = {"meta"}
HARMLESS = {
    *("html", "head", "meta", "title", "style", "body", "main", "section", "h1", "h2", "h3", "p", "span", "code"),
    *("dl", "dt", "dd", "table", "thead", "tbody", "tfoot", "tr", "th", "td"),
}
ATTRIBUTES = {"class", "style", "lang", "charset", "http-equiv", "content", "name"}

HOSTILE = [
    "<script>alert(1)</script>",
    "</code></td></table><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "</style><style>@import url(//evil.example)</style>",
    "<!-- --><![CDATA[",
    "&lt;b&gt;&amp;",
    "javascript:alert(1)",
    "\x1b[31m\x00\u202egnp.exe",
    "b\udcff\udc80",
    "{{7*7}}${7*7}",
]
"""Ids of jobs and names of queues."""


@define
class Page(HTMLParser):
    """A page taken apart: its tables, its texts and everything that could do something."""

    tables: list[list[list[str]]] = field(factory=list)
    text: list[str] = field(factory=list)
    commands: list[str] = field(factory=list)
    headings: list[str] = field(factory=list)
    _open: list[str] = field(factory=list)
    _command: bool = False

    @classmethod
    def of(cls, path: Path) -> Page:
        page = cls()
        page.feed(path.read_text("utf-8"))
        page.close()
        assert not page._open, "an element that does not end"
        return page

    def __attrs_pre_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in HARMLESS
        attributes = dict(attrs)
        assert attributes.keys() <= ATTRIBUTES
        if "style" in attributes:
            assert (attributes["style"] or "").removeprefix("width:").removesuffix("%").replace(".", "").isdigit()
        if tag not in VOID:
            self._open.append(tag)
        match tag:
            case "table":
                self.tables.append([])
            case "tr":
                self.tables[-1].append([])
            case "td" | "th":
                self.tables[-1][-1].append("")
            case "h1" | "h2" | "h3":
                self.headings.append("")
        self._command = attributes.get("class") == "command"
        if self._command:
            self.commands.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag
        self._command = False

    def handle_data(self, data: str) -> None:
        self.text.append(data)
        if {"td", "th"} & set(self._open):
            self.tables[-1][-1][-1] += data
        if {"h1", "h2", "h3"} & set(self._open):
            self.headings[-1] += data
        if self._command:
            self.commands[-1] += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


@define
class Reported:
    """A run of a command with a report in every format."""

    run: Run
    folder: Path

    @property
    def page(self) -> Page:
        return Page.of(self.folder / "it.html")

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.folder / "it.jsonl").read_text("utf-8").split("\n") if line]

    def table(self, name: str) -> Any:
        return pyarrow.parquet.read_table(self.folder / "it.parquet" / name)


def reported(folder: Path, *arguments: str) -> Reported:
    reports = [word for suffix in ("html", "jsonl", "parquet") for word in ("--report", str(folder / f"it.{suffix}"))]
    run = ferryman(*arguments, *reports)
    assert {path.name for path in folder.iterdir()} == {"it.html", "it.jsonl", "it.parquet"}, run.stderr
    return Reported(run, folder)


def second(folder: Path) -> Path:
    """A place for another report of the same test."""
    made = folder.with_name(f"{folder.name}-second")
    made.mkdir()
    return made


@pytest.fixture
def crashed(client: redis.Redis) -> Capture:
    """A keyspace with damage of many kinds."""
    loaded = capture("kue", "crashed")
    load(loaded, client)
    return loaded


def test_every_format_tells_the_same(server: Server, crashed: Capture, tmp_path: Path) -> None:
    url, now = server.url(family="kue"), ("--now", str(crashed.captured_at_ms))
    audit = reported(tmp_path, "audit", url, "--format", "json", *now)
    *findings, summary = audit.lines
    assert findings == audit.run.lines()
    assert audit.run.status == 1
    by_rule = Counter(f"{each['rule']} {each['severity']}" for each in findings)
    assert summary["findings"] == by_rule
    assert len(by_rule) > 5

    expected = [Finding(**{**each, "severity": Severity(each["severity"])}) for each in findings]
    assert [row for batch in audit.table("findings").to_batches() for row in FINDINGS.rows(batch)] == expected
    totals = audit.table("totals").to_pylist()
    assert sum(row["jobs"] for row in totals) == summary["jobs"] == sum(summary["by_state"].values())
    assert Counter({row["queue"]: 0 for row in totals}) | _sums(totals, "queue") == summary["by_queue"]

    page = audit.page
    places = {(row["queue"], row["state"]): row["jobs"] for row in totals}
    header, *rows, all_jobs = page.tables[0]
    states = header[1:-2]
    assert states == sorted(summary["by_state"])
    shown = {
        (row[0].replace("(no name)", ""), state): int(cell) for row in rows for state, cell in zip(states, row[1:-2], strict=True)
    }
    assert {place: jobs for place, jobs in shown.items() if jobs} == places
    assert list(map(int, all_jobs[1:-1])) == [*(summary["by_state"][state] for state in states), summary["jobs"]]
    ages = page.tables[1]
    assert sum(int(row[-2]) for row in ages[1:]) == summary["jobs"]
    counted = Counter({" ".join(words[:2]): int(words[2]) for heading in page.headings[4:] if (words := heading.split())})
    assert counted == by_rule
    mendable = {rule for rule in (each.split()[0] for each in by_rule) if rule in get_family("kue").repairable}
    assert {command.split()[-1] for command in page.commands} == mendable
    assert all(command.startswith(f"ferryman audit '{url}' --repair ") for command in page.commands)


def _sums(rows: list[dict[str, Any]], column: str) -> Counter[str]:
    sums: Counter[str] = Counter()
    for row in rows:
        sums[row[column]] += row["jobs"]
    return sums


def test_a_command_on_a_page_mends_what_it_stands_under(server: Server, crashed: Capture, tmp_path: Path) -> None:
    audit = reported(tmp_path, "audit", server.url(family="kue"), "--now", str(crashed.captured_at_ms))
    for command in audit.page.commands:
        program, name, url, *options = command.replace("'", "").split()
        assert program == "ferryman"
        planned = ferryman(name, url, *options, "--now", str(crashed.captured_at_ms), "--format", "json")
        assert planned.lines()
        assert {each["rule"] for each in planned.lines()} == {options[-1]}


def test_nothing_from_redis_can_do_more_than_look_odd(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    for text in HOSTILE:
        raw = text.encode("utf-8", "surrogateescape")
        client.hset(b"ferryman:{%b}:job:%b" % (raw.replace(b"{", b"%7B").replace(b"}", b"%7D"), raw), "message", raw)
        client.set(b"ferryman:" + raw, "no key of ours")
    audit = reported(tmp_path, "audit", server.url(), "--format", "json")
    page, everything = audit.page, "".join(audit.page.text)
    assert [each for each in HOSTILE if show(each) not in everything] == []
    assert {row[0] for row in page.tables[0][1:-1]} == {show(each) for each in HOSTILE}
    *findings, summary = audit.lines
    assert findings == audit.run.lines()
    assert summary["jobs"] == len(HOSTILE)
    rows = [row for batch in audit.table("findings").to_batches() for row in FINDINGS.rows(batch)]
    assert {row.job_id for row in rows if row.job_id} == set(HOSTILE)


def test_a_sound_keyspace_and_a_family_without_jobs_have_their_page(server: Server, client: redis.Redis, tmp_path: Path) -> None:
    family = get_family("ferryman")
    client.sadd("ferryman:queues", "q")
    client.hset("ferryman:{q}:meta", mapping={"schema": 1, "sequence": 0})
    empty = reported(tmp_path, "audit", server.url(), "--format", "json")
    assert "There is no job." in empty.page.text
    store(client, family, "ferryman", [Job("1", "q", "n", State.WAITING, payload=b"x", priority=0)], 1_000)
    sound = reported(second(tmp_path), "audit", server.url(), "--now", "1000")
    assert sound.run.status == 0
    assert "No rule is broken." in sound.page.text


def test_a_comparison_is_reported_with_all_its_differences(server: Server, crashed: Capture, tmp_path: Path) -> None:
    source, target = server.url(family="kue"), server.url(1)
    now = ("--now", str(crashed.captured_at_ms))
    assert ferryman("migrate", source, target, *now, "--format", "json").status in (0, 1)
    done = reported(tmp_path, "verify", source, target, *now, "--format", "json")
    assert done.run.status == 0
    assert "no differences" in done.page.text
    with server.client(1) as client:
        for key in client.scan_iter(b"ferryman:*:job:*"):
            client.hset(key, "payload", "<script>")
    differing = reported(second(tmp_path), "verify", source, target, *now, "--format", "json")
    *differences, summary = differing.lines
    assert [*differences, summary] == differing.run.lines()
    assert summary["differences"] == len(differences) > 0
    rows = [row for batch in differing.table("differences").to_batches() for row in DIFFERENCES.rows(batch)]
    assert rows == [Difference(**each) for each in differences]
    (totals,) = differing.table("totals").to_pylist()
    assert totals.items() <= summary.items()
    assert {row[0]: int(row[1]) for row in differing.page.tables[0][1:]} == summary["by_field"]


# Whole, or not there


@pytest.mark.parametrize("suffix", ["html", "jsonl", "parquet"])
def test_a_report_that_was_not_finished_leaves_nothing_behind(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"it.{suffix}"
    finding = Finding("KUE-1", Severity.ERROR, "1", "q:job:1", "q", "lost")
    with pytest.raises(KeyboardInterrupt), open_reports([path], "findings") as files:
        _interrupted(files, finding, path)
    assert list(tmp_path.iterdir()) == []


def _interrupted(files: Reports, finding: Finding, path: Path) -> None:
    for _ in range(5000):
        files.add(finding)
    assert not path.exists()
    assert len(list(path.parent.iterdir())) == 1
    raise KeyboardInterrupt


def test_a_report_takes_the_place_of_an_older_one_only_when_it_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "it.jsonl"
    path.write_text("older")
    with pytest.raises(OSError, match="full"), open_reports([path], "findings"):
        raise OSError("disk full")
    assert path.read_text() == "older"
    with open_reports([path], "findings") as files:
        files.finish(Outcome({"jobs": 0}, {}, [], str))
        assert path.read_text() == '{"jobs":0}\n'
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(("name", "words"), [("it.pdf", "ends in .html"), ("it", "ends in .html"), ("", "such a folder")])
def test_a_name_that_no_report_can_have_is_refused_before_anything_is_read(tmp_path: Path, name: str, words: str) -> None:
    folder = tmp_path / "it.parquet"
    folder.mkdir()
    run = ferryman("audit", "ferryman://127.0.0.1:1/0", "--report", str(folder.with_name(name) if name else folder))
    assert run.status == 2
    assert words in run.error
    assert list(tmp_path.iterdir()) == [folder]


def test_a_source_that_fails_leaves_no_report(server: Server, tmp_path: Path) -> None:
    run = ferryman("audit", server.url(family="kue"), "--report", str(tmp_path / "it.html"))
    assert run.status == 2
    assert list(tmp_path.iterdir()) == []


# The numbers


def test_ages_and_places_add_up_and_cross_process_borders() -> None:
    now = 10_000_000_000
    created = [None, now, now - 59_999, now - 60_000, now - 86_400_000, 0]
    whole, left, right = Census(), Census(passing=1), Census(unconfirmed=2)
    for number, created_at in enumerate(created):
        job = Job(str(number), f"q{number % 2}", "n", State.WAITING, created_at=created_at)
        whole.count(job, now)
        (left if number % 2 else right).count(job, now)
    left.merge(Census.from_json(right.to_json()))
    whole.passing, whole.unconfirmed = 1, 2
    assert left == whole
    ages = {"1 minute": 2, "1 hour": 1, "7 days": 1, OLDER: 1, UNDATED: 1}
    assert whole.by_age == Counter({("waiting", step): number for step, number in ages.items()})
    assert whole.oldest == {("q0", "waiting"): now - 86_400_000, ("q1", "waiting"): 0}
    assert [age_of(now - ms + 1, now) for ms in AGES.values()] == list(AGES)


def test_what_was_not_looked_at_again_is_said() -> None:
    assert list(doubts(Census())) == []
    assert ["1,000 findings" in sentence for sentence in doubts(Census(passing=1000, unconfirmed=1000))] == [True, True]


@pytest.mark.parametrize("suffix", ["html", "jsonl", "parquet"])
def test_a_report_on_a_full_disk_is_one_sentence_that_names_it(
    server: Server, client: redis.Redis, tmp_path: Path, suffix: str
) -> None:
    for number in range(1, 1500):
        client.hset(f"q:job:{number}", mapping={"type": "mail", "state": f"no state {number}", "data": "{"})
    with mounted(tmp_path / "small", "4k") as small:
        path = small / f"audit.{suffix}"
        outcome = ferryman("audit", server.url(family="kue"), "--report", str(path), "--format", "json")
        assert outcome.status == 3
        assert outcome.error.startswith(f"ferryman: {path}: the report can't be written (")
        assert not list(small.iterdir())

"""What an audit leaves out: jobs that are accepted become no facts, and nothing of what the rules find or count is missing."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve
from ferryman.compat.kombu import FAMILY as KOMBU
from ferryman.compat.kombu.generate import generate as kombu_jobs
from ferryman.compat.kue import FAMILY
from ferryman.compat.kue.generate import generate
from ferryman.compat.qless import FAMILY as QLESS
from ferryman.compat.qless.generate import generate as qless_jobs
from ferryman.migrations.columnar.columns import NO_TTL, Hashes
from ferryman.migrations.engine import Census, Engine, key_rows
from ferryman.migrations.engine.file_snapshot import take
from ferryman.migrations.engine.key_row_jobs import KeyRowJobs
from ferryman.migrations.engine.key_rows import KeyRowWriter, hash_of_names, placement_hashes
from ferryman.migrations.engine.runner import InProcess
from ferryman.migrations.fact_reader import ReadSummary
from ferryman.migrations.local import LocalEngine
from ferryman.migrations.scan import entries
from ferryman.schema.connection.address import Address
from ferryman.schema.fact import Fact, Subject
from ferryman.schema.job import State
from ferryman.schema.prefilter import IndexKey
from ferryman.schema.rule import Finding
from ferryman.spark.engine import SparkEngine
from ferryman.testing.keyspaces import dump, read_keyspace, store
from hypothesis import given
from hypothesis import strategies as st

from ..support.keyspace import inject_all
from ..support.servers import Server

NOW = 1_800_000_000_000
JOBS = list(generate(600, 11, NOW))


def address(server: Server) -> Address:
    return Address.parse(server.url(0, family="kue"))


def audited(engine: Engine, source: Address) -> tuple[list[Finding], Census]:
    """What an audit says, but for the seconds that keys have left to live."""
    findings: list[Finding] = []
    census = engine.audit(source, NOW, findings.append)
    return sorted((evolve(each, detail=re.sub(r" in \d+ s", "", each.detail)) for each in findings), key=repr), census


@given(st.lists(st.floats(allow_nan=False), min_size=1), st.binary())
def test_placement_hashes_of_many_are_those_of_each(scores: list[float], key: bytes) -> None:
    index_key = IndexKey(key)
    found = placement_hashes(np.uint64(index_key.base), np.uint64(index_key.factor), np.array(scores))
    assert found.view(np.uint64).tolist() == [index_key.placement_hash(score) for score in scores]


@given(st.sets(st.lists(st.binary(max_size=3)).map(tuple), min_size=2))
def test_fields_are_told_apart_by_their_hashes(field_sets: set[tuple[bytes, ...]]) -> None:
    assert len(set(map(hash_of_names, field_sets))) == len(field_sets)


@given(st.sets(st.lists(st.binary()).map(tuple)))
def test_fields_of_any_name_reach_the_driver(field_sets: set[tuple[bytes, ...]]) -> None:
    by_hash = {hash_of_names(names): names for names in field_sets}
    assert ReadSummary.of([json.dumps(ReadSummary(field_sets=by_hash).to_json())]).field_sets == by_hash


@pytest.mark.parametrize("by_column", [True, False])
def test_records_with_fields_in_too_many_combinations_are_facts(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, by_column: bool
) -> None:
    monkeypatch.setattr(key_rows, "MAX_FIELD_SETS", 1)
    client = server.client()
    store(client, FAMILY, "q", [job for job in JOBS if job.state is State.WAITING], NOW)
    client.hset("q:job:9", "workers_own", "x")
    found = chain.from_iterable(entries(client, FAMILY, "q"))
    records = [entry for entry in found if re.fullmatch(rb"q:job:\d+", entry.key)]
    writer = KeyRowWriter(address(server), NOW, str(tmp_path), 2)
    if by_column:
        words = [list(chain.from_iterable(record.value.items())) for record in records]
        made = writer.hashes(Hashes.of([record.key for record in records], [NO_TTL] * len(records), words))
    else:
        made = chain.from_iterable(map(writer.facts, records))
    keys = {fact.key for fact in chain(made, writer.rest())}
    (names,) = writer.close().field_sets.values()
    assert keys == {record.key for record in records if tuple(record.value) != names}
    assert 0 < len(keys) < len(records)


def test_sound_jobs_become_no_facts(server: Server, tmp_path: Path) -> None:
    store(server.client(), FAMILY, "q", JOBS, NOW)
    snapshot = take(InProcess(), address(server), NOW, str(tmp_path / "facts"), 3)
    active = {job.id for job in JOBS if job.state is State.ACTIVE and not job.ttl}
    assert {subject.job_id for bucket in range(3) for subject in snapshot.facts.subjects(bucket)} == active
    assert snapshot.accepted.jobs == len(JOBS) - len(active)
    assert snapshot.totals == take(InProcess(), address(server), NOW, str(tmp_path / "all"), 3, prefiltering=False).totals


def test_where_no_job_is_a_fact_nobody_looks_for_facts(server: Server, tmp_path: Path) -> None:
    client = server.client()
    store(client, FAMILY, "q", [job for job in JOBS if job.state is State.WAITING], NOW)
    assert not take(InProcess(), address(server), NOW, str(tmp_path / "undamaged"), 3).has_facts
    client.zrem("q:jobs", *client.zrange("q:jobs", 0, 0))
    assert take(InProcess(), address(server), NOW, str(tmp_path / "mismatched"), 3).has_facts
    client.flushall()
    store(client, FAMILY, "q", [job for job in JOBS if job.state is State.ACTIVE and not job.ttl][:1], NOW)
    assert take(InProcess(), address(server), NOW, str(tmp_path / "unverified"), 3).has_facts


def test_every_rule_finds_in_a_damaged_keyspace_what_it_finds_without_key_rows(engine: SparkEngine, server: Server) -> None:
    client = server.client()
    store(client, FAMILY, "q", JOBS, NOW)
    inject_all(client, FAMILY, "q", JOBS, NOW)
    expected = audited(LocalEngine(), address(server))
    assert {finding.rule for finding in expected[0]} >= FAMILY.injectable
    assert audited(engine, address(server)) == expected


def test_a_snapshot_file_is_audited_in_the_same_way(engine: SparkEngine, server: Server) -> None:
    client = server.client()
    store(client, FAMILY, "q", JOBS[:200], NOW)
    client.zrem("q:jobs", "02|17")
    client.save()
    path = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    source = Address.parse(f"ferryman+rdb://{path}?family=kue&db=0")
    expected = audited(LocalEngine(), address(server))
    assert audited(engine, source) == expected
    assert "KUE-4" in {finding.rule for finding in expected[0]}


def test_messages_in_lists_are_left_out_too(engine: SparkEngine, server: Server, tmp_path: Path) -> None:
    """They have no keys of their own; those that are damaged, held or waiting twice are looked at, from a server and a file."""
    client, jobs = server.client(), list(kombu_jobs(400, 11, NOW))
    store(client, KOMBU, "", jobs, NOW)
    source = Address.parse(server.url(0, family="kombu"))
    snapshot = take(InProcess(), source, NOW, str(tmp_path / "facts"), 3)
    assert snapshot.accepted.jobs == sum(job.state is not State.ACTIVE for job in jobs) > 300
    assert snapshot.totals == take(InProcess(), source, NOW, str(tmp_path / "all"), 3, prefiltering=False).totals
    undamaged = inject_all(client, KOMBU, "", jobs, NOW)
    client.rpush(undamaged[0].queue, *client.lrange(undamaged[0].queue, 0, 1))
    expected = audited(LocalEngine(), source)
    assert {finding.rule for finding in expected[0]} >= KOMBU.injectable
    assert audited(engine, source) == expected
    client.save()
    path = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    assert audited(engine, Address.parse(f"ferryman+rdb://{path}?family=kombu&db=0")) == expected


def name(finding: Finding) -> tuple[str, str | None, str]:
    return finding.rule, finding.job_id, finding.key


def facts_by_job(subjects: Iterable[Subject]) -> dict[str, Counter[Fact]]:
    return {subject.job_id: Counter(subject.facts) for subject in subjects if not subject.scope}


def test_jobs_with_histories_and_tags_are_left_out_too(engine: SparkEngine, server: Server, tmp_path: Path) -> None:
    """Without its history, or with another one, a job is looked at, and so is a tag of which only sound jobs are left."""
    client, jobs = server.client(), list(qless_jobs(800, 13, NOW))
    store(client, QLESS, "ql", jobs, NOW)
    source = Address.parse(server.url(0, family="qless"))
    snapshot = take(InProcess(), source, NOW, str(tmp_path / "facts"), 3)
    assert snapshot.accepted.jobs > 640
    read = take(InProcess(), source, NOW, str(tmp_path / "all"), 3, prefiltering=False)
    assert snapshot.totals == read.totals
    transferred = take(InProcess(), source, NOW, str(tmp_path / "transferred"), 3, for_transfer=True)
    subjects = [
        *(subject for bucket in range(3) for subject in transferred.facts.subjects(bucket)),
        *(each for bucket in range(3) for each in KeyRowJobs(transferred.keyspace, transferred.key_rows, bucket).subjects()),
    ]
    of_facts = [subject for bucket in range(3) for subject in read.facts.subjects(bucket)]
    assert facts_by_job(subjects) == facts_by_job(of_facts)
    inject_all(client, QLESS, "ql", jobs, NOW)
    expected = audited(LocalEngine(), source)
    assert {finding.rule for finding in expected[0]} >= QLESS.injectable
    plain = read_keyspace(QLESS, dump(client).values(), "ql", NOW).findings()
    assert Counter(map(name, expected[0])) == Counter(map(name, plain))
    assert audited(engine, source) == expected
    for key in client.scan_iter():
        client.persist(key)  # at that moment it would have gone from a file
    findings, census = audited(LocalEngine(), source)
    client.save()
    path = Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]
    in_file = Address.parse(f"ferryman+rdb://{path}?family=qless&db=0")
    assert audited(engine, in_file) == (findings, evolve(census, unconfirmed=0)), "which need not be read again"

"""Values that become cells and values again, whatever stands in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from ferryman.migrations.engine.job_digests import DIGESTS, SIDES
from ferryman.migrations.engine.tables import (
    DIFFERENCES,
    FACTS,
    FINDINGS,
    JOBS,
    ROWS,
    batches,
    decode_json,
    decode_text,
    encode_json,
    encode_text,
)
from ferryman.schema.fact import Fact, FactKind
from ferryman.schema.job import JOB_FIELDS, Job, State
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from ..support.effort import examples

TEXT = st.text(st.characters(exclude_categories=())) | st.binary().map(lambda raw: raw.decode("utf-8", "surrogateescape"))
NAMES = TEXT | TEXT.map(lambda text: f"b64:{text}")
WHOLE = st.integers() | st.none()
EXTRA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT | st.sampled_from(["b64", "map"]), inner, max_size=3),
    max_leaves=4,
)

FACT = st.builds(
    Fact,
    kind=st.sampled_from(FactKind),
    role=NAMES,
    key=st.binary(),
    redis_type=NAMES,
    job_id=NAMES | st.none(),
    scope=NAMES,
    queue=NAMES | st.none(),
    label=NAMES | st.none(),
    member=st.binary() | st.none(),
    score=st.floats(allow_nan=False) | st.none(),
    index=st.integers(0, 1 << 62) | st.none(),
    values=st.lists(st.binary(), max_size=3).map(tuple),
    ttl_ms=st.integers(0, 1 << 62) | st.none(),
)

JOB = st.builds(
    Job,
    id=NAMES,
    queue=NAMES,
    name=NAMES,
    state=st.sampled_from(State),
    priority=WHOLE | st.floats(allow_nan=False),
    payload=st.binary() | st.none(),
    created_at=WHOLE,
    due_at=WHOLE,
    attempts=WHOLE,
    progress=st.floats(0, 1) | st.none(),
    error=NAMES | st.none(),
    tags=st.lists(NAMES, max_size=3).map(tuple),
    unique_key=NAMES | st.none(),
    ttl=WHOLE,
    logs=st.lists(st.binary(), max_size=3).map(tuple),
    history=st.lists(st.dictionaries(TEXT, EXTRA, max_size=2), max_size=2).map(tuple),
    extra=st.dictionaries(TEXT, EXTRA, max_size=2),
    position=WHOLE,
    rank=st.integers(-256, 255) | st.none(),
)


@given(st.lists(FACT, max_size=4))
def test_facts_come_back(facts: list[Fact]) -> None:
    assert list(FACTS.rows(FACTS.batch(facts))) == facts


@given(st.lists(JOB, max_size=2))
@settings(max_examples=examples(50))
def test_jobs_come_back_with_their_places(jobs: list[Job]) -> None:
    back = list(JOBS.rows(JOBS.batch(jobs)))
    assert back == jobs
    assert [(job.position, job.rank) for job in back] == [(job.position, job.rank) for job in jobs]


@given(NAMES, NAMES)
def test_different_texts_stay_different_and_valid(first: str, second: str) -> None:
    cells = [encode_text(first), encode_text(second)]
    assert (cells[0] == cells[1]) == (first == second)
    assert [decode_text(cell) for cell in cells] == [first, second]
    assert pa.array(cells).to_pylist() == cells


@given(EXTRA)
def test_extra_comes_back_from_its_json(value: Any) -> None:
    assert decode_json(encode_json(value)) == value


def test_a_text_that_only_looks_encoded_stands_for_itself() -> None:
    assert decode_text("b64:not base64") == "b64:not base64"


def test_batches_are_bounded_by_rows_and_by_bytes() -> None:
    small = [Fact(FactKind.TOKEN, "lock", b"lock", "string")] * (ROWS + 1)
    assert [batch.num_rows for batch in batches(FACTS, small)] == [ROWS, 1]
    assert [batch.num_rows for batch in batches(FACTS, small[:3], lambda _: 3 << 20)] == [2, 1]


def test_the_jobs_table_has_the_canonical_fields_in_their_order() -> None:
    assert tuple(column.name for column in JOBS.columns) == (*JOB_FIELDS, "position", "rank", "exact")


def test_every_table_has_the_schema_that_spark_expects(spark: SparkSession) -> None:
    for table in (FACTS, JOBS, FINDINGS, DIFFERENCES, SIDES, DIGESTS):
        assert to_arrow_schema(spark.createDataFrame([], table.ddl).schema) == table.arrow

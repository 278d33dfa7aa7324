"""Batches give everyone the score they would have with everyone else beside them."""

import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from fairfox.benchmark.worlds import LENDING
from fairfox.errors import ColumnError, DataError, OptionError
from fairfox.fairtests.inputs import Inputs
from fairfox.fairtests.storage import save_test, to_bytes
from fairfox.gradients.jacobian import WIDE_STEP, default_step, suited_step
from fairfox.pipeline import score
from fairfox.report.files import scores_table
from fairfox.streaming.batches import PILOT, BatchScorer, job_for, prepare_job, scorer_for, some_people
from fairfox.streaming.sources import ModelSource
from tests.streaming.world import COLUMNS, MODEL, assert_same_columns, at_once, job_of, lending
from tests.support import fitted_on

pytestmark = pytest.mark.brief

PEOPLE = lending(600)
STAIRS = """
import numpy as np
def predict(table):
    income, debt = (np.asarray(table[name], float) for name in ("income", "debt_ratio"))
    worth = income / 10_000 - debt
    return 1 / (1 + np.exp(3 - np.where(income < 30_000, np.floor(12 * worth) / 12, worth)))
"""


def in_batches(scorer: BatchScorer, people: pa.Table, rows: int) -> pa.Table:
    return pa.Table.from_batches([scorer.score(batch) for batch in people.to_batches(max_chunksize=rows)])


@pytest.mark.parametrize("test", ["faux", "faux+ng", "fta", "fta+linear"])
def test_a_black_box_is_asked_at_the_same_step_in_every_batch(test: str, tmp_path: Path):
    # stairs for the poor and smooth for the rich: in a sorted table every batch by itself would choose another step
    people = lending(900).sort_by("income")
    fitted = fitted_on(lending(200, seed=0), protected="sex", columns=COLUMNS, refits=2, test=test)
    (tmp_path / "stairs.py").write_text(STAIRS)
    source = ModelSource(str(tmp_path / "stairs.py:predict"))
    job = prepare_job((fitted, to_bytes(fitted)), source, people, options={})
    assert job.constants.step == WIDE_STEP
    rich = Inputs.read(source.load(), people.slice(600), None, fitted.options, test=fitted)
    assert suited_step(rich.target, rich.data.x) == default_step(rich.data.x)
    expected = scores_table(score(fitted, source.load(), people).record)
    for rows in (150, 900):
        assert_same_columns(in_batches(BatchScorer(job), people, rows), expected)


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(21, 2), pa.timestamp("us", tz="Europe/Vienna"), pa.binary(4), pa.large_string(), pa.int16()],
    ids=str,
)
def test_names_of_any_type_come_back_as_they_are(kind: pa.DataType, tmp_path: Path):
    values = [b"%04d" % n for n in range(60)] if kind == pa.binary(4) else range(60)
    names = pa.array(values, kind) if kind == pa.binary(4) else pa.array(values, pa.int64()).cast(kind)
    people = PEOPLE.slice(0, 60).drop_columns(["name"]).append_column("name", names)
    fitted = fitted_on(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2, id="name")
    found = in_batches(BatchScorer(job_of(fitted, people, tmp_path)), people, 25)
    assert found["row_id"].combine_chunks().equals(names)


def test_batches_have_the_columns_that_are_promised_and_rows_have_their_names(tmp_path: Path):
    fitted = fitted_on(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2, id="name")
    scorer = BatchScorer(job_of(fitted, PEOPLE, tmp_path))
    batch = PEOPLE.slice(10, 5).to_batches()[0]
    found = scorer.score(batch)
    assert found.schema == scorer.schema
    assert found["row_id"].to_pylist() == ["p10", "p11", "p12", "p13", "p14"]
    nameless = scorer.score(batch.drop_columns(["name"]), row_numbers=pa.array([7, 8, 9, 10, 11]))
    assert nameless["row_id"].to_pylist() == [7, 8, 9, 10, 11]


def test_dictionaries_and_a_column_that_misses_values_only_in_later_batches_are_read(tmp_path: Path):
    fitted = fitted_on(LENDING.sample(120, seed=0).table, protected="sex", columns=COLUMNS, refits=2)
    people = PEOPLE.set_column(PEOPLE.column_names.index("sex"), "sex", PEOPLE["sex"].dictionary_encode())
    found = in_batches(BatchScorer(job_of(fitted, people, tmp_path)), people, 200)
    assert_same_columns(found, scores_table(at_once(fitted, PEOPLE, tmp_path)))


def test_a_scorer_is_made_once_for_the_same_job(tmp_path: Path):
    fitted = fitted_on(LENDING.sample(60, seed=0).table, protected="sex", columns=COLUMNS, refits=2)
    job, again, other = (job_of(fitted, PEOPLE, tmp_path, **options) for options in ({}, {}, {"delta": 0.2}))
    assert scorer_for(job) is scorer_for(again)
    assert scorer_for(job) is not scorer_for(other)
    sources = [replace(job.model, **given) for given in ({}, {"trust": True}, {"endpoint": {"timeout": 3.0}})]
    assert len({replace(job, model=source).digest for source in sources}) == 3


def test_a_batch_that_lacks_a_column_is_refused(tmp_path: Path):
    people = PEOPLE.append_column("count", pa.array([1.0] * 600))
    fitted = fitted_on(people.slice(0, 100), protected="sex", columns=COLUMNS, refits=2, weights="count")
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    for name, kind, message in (
        ("income", ColumnError, "has no column 'income'"),
        ("count", ColumnError, "has no column 'count'"),
    ):
        with pytest.raises(kind, match=message):
            scorer.score(people.drop_columns([name]).to_batches()[0])


def test_only_columns_that_count_are_read(tmp_path: Path):
    given = {"columns": COLUMNS, "refits": 1}
    fitted = fitted_on(lending(60), protected=["sex", "tenure_years<5"], label="approved", id="name", **given)
    assert fitted.encoding.needed == ("income", "debt_ratio", "sex", "tenure_years", "approved", "name")


def test_a_test_comes_as_a_file_or_fitted(tmp_path: Path):
    fitted = fitted_on(lending(60), protected="sex", columns=COLUMNS, refits=1)
    save_test(fitted, tmp_path / "test.fox")
    (tmp_path / "model.py").write_text(MODEL)
    source = ModelSource(str(tmp_path / "model.py:predict"))
    jobs = [
        job_for(test, source.spec, lambda columns: lending(20).select(["sex", *COLUMNS]), dumps=pickle.dumps)
        for test in (fitted, tmp_path / "test.fox")
    ]
    assert len({job.digest for job in jobs}) == 1
    with pytest.raises(DataError, match="no rows"):
        prepare_job((fitted, to_bytes(fitted)), source, lending(0), options={})
    with pytest.raises(ColumnError, match="none of the test's columns, such as 'income'"):
        prepare_job((fitted, to_bytes(fitted)), source, lending(5).select([]), options={})
    with pytest.raises(OptionError, match="fdr is no option for streams; give positive, output, returns, kind"):
        prepare_job((fitted, to_bytes(fitted)), source, lending(5), options={"fdr": 0.1})


def test_some_people_come_from_the_whole_table_and_all_of_few_do():
    table = pa.table({"n": range(PILOT + PILOT // 5)})
    drawn = some_people(table)["n"].to_pylist()
    assert len(drawn) == len(set(drawn)) == PILOT
    assert drawn == sorted(drawn)
    last = sum(n >= PILOT for n in drawn)  # a sixth of the table, and so of those drawn
    assert 0.9 * PILOT / 6 < last < 1.1 * PILOT / 6
    assert some_people(table.slice(0, PILOT)).num_rows == PILOT

import pickle
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from torch import nn

from fairfox.errors import ColumnError, DataError
from fairfox.fitting import fit_test
from fairfox.gradients.finite_difference import WIDE_STEP, default_step, suited_step
from fairfox.scale.batches import BATCH_ROWS, GPU_ROWS, BatchScorer, scorer_for
from fairfox.scale.job import ModelSource, prepare
from fairfox.storage import to_bytes
from fairfox.synthetic.two_groups import LENDING
from tests.scale.world import COLUMNS, assert_same_columns, at_once, job_of, lending

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


@pytest.mark.parametrize("test", ["rank", "rank/a", "move", "faux+ng/s", "fta"])
def test_batches_give_everyone_the_numbers_that_all_at_once_give(test: str, tmp_path: Path):
    fitted = fit_test(LENDING.sample(120, seed=0).table, protected="sex", columns=COLUMNS, refits=3, test=test)
    job = job_of(fitted, PEOPLE, tmp_path)
    found = in_batches(BatchScorer(job), PEOPLE, 250)
    expected = at_once(fitted, PEOPLE, tmp_path)
    # networks of 32-bit numbers round by the size of what they are given
    assert_same_columns(found, expected.scores_table(), within=1e-6 if test == "move" else 1e-12)
    assert job.settled.delta == expected.delta
    assert found["prediction"].to_pylist() == pytest.approx(expected.predictions.tolist(), abs=1e-12)
    assert found["group[sex]"].to_pylist() == PEOPLE["sex"].to_pylist()


@pytest.mark.parametrize("test", ["faux", "faux+ng", "fta", "fta+linear"])
def test_a_black_box_is_asked_at_the_same_step_in_every_batch(test: str, tmp_path: Path):
    # stairs for the poor and smooth for the rich: in a sorted table every batch by itself would choose another step
    people = lending(900).sort_by("income")
    fitted = fit_test(lending(200, seed=0), protected="sex", columns=COLUMNS, refits=2, test=test)
    (tmp_path / "stairs.py").write_text(STAIRS)
    source = ModelSource(str(tmp_path / "stairs.py:predict"))
    job = prepare(to_bytes(fitted), fitted, source, people, options={})
    assert job.settled.step == WIDE_STEP
    x = fitted.seen(source.load(), people.slice(600)).people.x
    assert suited_step(fitted.seen(source.load(), people.slice(600)).target, x) == default_step(x)
    expected = fitted.score(source.load(), people).scores_table()
    for rows in (150, 900):
        assert_same_columns(in_batches(BatchScorer(job), people, rows), expected)


def test_models_with_gradients_and_tests_that_ask_for_none_have_no_step(tmp_path: Path):
    rank = fit_test(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2)
    assert job_of(rank, PEOPLE, tmp_path).settled.step is None
    faux = fit_test(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2, test="faux")
    net = nn.Linear(len(COLUMNS), 1)
    source = ModelSource("net", pickled=pickle.dumps(net))
    assert prepare(to_bytes(faux), faux, source, PEOPLE, options={"returns": "value"}).settled.step is None


@pytest.mark.parametrize(
    "kind",
    [pa.decimal128(21, 2), pa.timestamp("us", tz="Europe/Vienna"), pa.binary(4), pa.large_string(), pa.int16()],
    ids=str,
)
def test_names_of_any_type_come_back_as_they_are(kind: pa.DataType, tmp_path: Path):
    values = [b"%04d" % n for n in range(60)] if kind == pa.binary(4) else range(60)
    names = pa.array(values, kind) if kind == pa.binary(4) else pa.array(values, pa.int64()).cast(kind)
    people = PEOPLE.slice(0, 60).drop_columns(["name"]).append_column("name", names)
    fitted = fit_test(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2, id="name")
    found = in_batches(BatchScorer(job_of(fitted, people, tmp_path)), people, 25)
    assert found["row_id"].combine_chunks().equals(names)


def test_several_variables_numbers_and_weights_have_their_columns(tmp_path: Path):
    people = PEOPLE.append_column("count", pa.array([float(n % 4) for n in range(len(PEOPLE))]))
    people = people.set_column(
        people.column_names.index("sex"), "sex", pa.array([None, *PEOPLE["sex"].to_pylist()[1:]])
    )
    reference = LENDING.sample(300, seed=0).table.append_column("count", pa.array([1.0] * 300))
    fitted = fit_test(
        reference, protected=["sex", "tenure_years"], columns=COLUMNS, refits=2, weights="count", merge_rare=0.01
    )
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    alone = in_batches(scorer, people.slice(0, 1), 1)  # whose weight is 0, so that nobody counts
    found = pa.concat_tables([alone, in_batches(scorer, people.slice(1), 300)])
    expected = at_once(fitted, people, tmp_path)
    assert_same_columns(found, expected.scores_table())
    assert {"score[sex]", "effect[sex=Male]", "score[tenure_years]"} <= set(found.column_names)
    assert found["weight"].equals(people["count"])
    assert found["group_inferred"].to_pylist() == [True] + [False] * 599
    own = found["confident[tenure_years]"].to_pylist()
    assert own == expected.findings[1].confident_flags.tolist()
    groups = found["group[tenure_years]"].value_counts().to_pylist()
    assert len(groups) == 4
    assert all(130 <= group["counts"] <= 170 for group in groups)  # quarters of 600, with ties


def test_batches_have_the_columns_that_are_promised_and_rows_have_their_names(tmp_path: Path):
    fitted = fit_test(lending(100, seed=0), protected="sex", columns=COLUMNS, refits=2, id="name")
    scorer = BatchScorer(job_of(fitted, PEOPLE, tmp_path))
    batch = PEOPLE.slice(10, 5).to_batches()[0]
    found = scorer.score(batch)
    assert found.schema == scorer.schema
    assert found["row_id"].to_pylist() == ["p10", "p11", "p12", "p13", "p14"]
    nameless = scorer.score(batch.drop_columns(["name"]), numbers=pa.array([7, 8, 9, 10, 11]))
    assert nameless["row_id"].to_pylist() == [7, 8, 9, 10, 11]


def test_dictionaries_and_a_column_that_misses_values_only_in_later_batches_are_read(tmp_path: Path):
    fitted = fit_test(LENDING.sample(120, seed=0).table, protected="sex", columns=COLUMNS, refits=2)
    people = PEOPLE.set_column(PEOPLE.column_names.index("sex"), "sex", PEOPLE["sex"].dictionary_encode())
    found = in_batches(BatchScorer(job_of(fitted, people, tmp_path)), people, 200)
    assert_same_columns(found, at_once(fitted, PEOPLE, tmp_path).scores_table())


def test_a_scorer_is_made_once_for_the_same_job(tmp_path: Path):
    fitted = fit_test(LENDING.sample(60, seed=0).table, protected="sex", columns=COLUMNS, refits=2)
    job, again, other = (job_of(fitted, PEOPLE, tmp_path, **options) for options in ({}, {}, {"delta": 0.2}))
    assert scorer_for(job) is scorer_for(again)
    assert scorer_for(job) is not scorer_for(other)


def test_a_batch_that_lacks_a_column_or_has_impossible_weights_is_refused(tmp_path: Path):
    people = PEOPLE.append_column("count", pa.array([1.0] * 600))
    fitted = fit_test(people.slice(0, 100), protected="sex", columns=COLUMNS, refits=2, weights="count")
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    with pytest.raises(ColumnError, match="has no column 'income'"):
        scorer.score(people.drop_columns(["income"]).to_batches()[0])
    for weights, message in (([1.0, None], "hold nothing"), ([1.0, -2.0], "hold -2"), (["x", "y"], "are no numbers")):
        batch = people.slice(0, 2).drop_columns(["count"]).append_column("count", pa.array(weights)).to_batches()[0]
        with pytest.raises(DataError, match=message):
            scorer.score(batch)
    with pytest.raises(DataError, match="no column 'count'"):
        scorer.score(people.drop_columns(["count"]).to_batches()[0])


def test_a_gpu_takes_as_many_people_as_fit(tmp_path: Path):
    people = lending(100)
    fitted = fit_test(people, protected="sex", columns=COLUMNS, refits=1)
    scorer = BatchScorer(job_of(fitted, people, tmp_path))
    assert scorer.batch_rows == BATCH_ROWS
    scorer.device = "cuda"
    assert scorer.batch_rows == GPU_ROWS
    scorer.encoding = SimpleNamespace(width=1000)
    assert scorer.batch_rows == 2**30 // 16_000
    scorer.encoding = SimpleNamespace(width=10**6)
    assert scorer.batch_rows == BATCH_ROWS

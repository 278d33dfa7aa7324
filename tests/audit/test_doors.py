"""Three doors, one engine: an audit with a reference, a fitted test that scores, and a stream say the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import fairfox
from fairfox.errors import FairfoxError

SAME = ["score", "signed", "lower", "upper", "flag", "confident", "towards", "variable", "abstained", "group_inferred"]


def people(count: int, seed: int) -> pd.DataFrame:
    """Return people whose income, job and debt depend on their sex."""
    rng = np.random.default_rng(seed)
    sex = rng.integers(0, 2, count)
    return pd.DataFrame(
        {
            "sex": np.where(sex == 1, "m", "f"),
            "race": rng.choice(["a", "b", "c"], count, p=[0.5, 0.3, 0.2]),
            "age": np.clip(rng.normal(42, 12, count), 18, 80).round(),
            "income": 40 + 8 * rng.normal(size=count) + 6 * sex,
            "debt": np.exp(rng.normal(size=count) - 0.3 * sex),
            "job": np.where(rng.random(count) < 0.3 + 0.4 * sex, "clerk", "smith"),
            "weight": rng.uniform(0.5, 2.0, count),
        }
    )


REFERENCE, PEOPLE = people(400, 0), people(150, 1)
COLUMNS = ["income", "debt", "job"]


def rule(table: Any) -> np.ndarray:
    """Return the probability of a loan."""
    wanted = np.asarray(table["income"]) - 43 - np.asarray(table["debt"]) + 3 * (np.asarray(table["job"]) == "clerk")
    return 1 / (1 + np.exp(-wanted / 6))


def unknown_sex(table: pd.DataFrame) -> pd.DataFrame:
    return table.assign(sex=[None if i % 5 == 0 else sex for i, sex in enumerate(table["sex"])])


KINDS: dict[str, dict[str, Any]] = {
    "two groups": {"protected": "sex"},
    "many classes": {"protected": "race"},
    "every class with every other": {"protected": "race", "options": {"contrasts": "all"}},
    "a number": {"protected": "age"},
    "several variables": {"protected": ["sex", "age"]},
    "weights": {"protected": "sex", "weights": "weight"},
    "given": {"protected": "sex", "given": "debt"},
    "aligned": {"protected": "sex", "test": "rank/a"},
    "gradients": {"protected": "sex", "test": "faux+ng"},
}


def by_stream(folder: Path, table: pd.DataFrame, test: Any, **options: Any) -> tuple[pa.Table, dict[str, Any]]:
    """Return the scores and the summary of a stream over the people in two batches."""
    from fairfox.streaming.files import score_files

    source = folder / "people.parquet"
    table.to_parquet(source, row_group_size=100)
    summary = score_files(test, rule, [source], folder / "scores", **options)
    parts = sorted((folder / "scores").glob("*.parquet"))
    return pa.concat_tables([pq.read_table(part) for part in parts]), summary


@pytest.mark.parametrize("kind", [*KINDS, "unknown values"])
def test_the_three_doors_agree(kind: str, tmp_path: Path):
    given = {"columns": COLUMNS, **KINDS.get(kind, {"protected": "sex"})}
    more = {"refits": 3, **given.pop("options", {})}
    table = unknown_sex(PEOPLE) if kind == "unknown values" else PEOPLE
    audited = fairfox.audit(rule, table, reference=REFERENCE, **given, options=more)
    test = fairfox.fit(REFERENCE, **given, options=more)
    scored = fairfox.score(test, rule, table)
    expected, found = audited.to_pandas(), scored.to_pandas()
    for name in SAME:
        pd.testing.assert_series_equal(found[name], expected[name], rtol=1e-9, atol=1e-9)
    assert scored.warnings == audited.warnings
    assert scored.verdict == audited.verdict
    for one, other in zip(scored.findings, audited.findings, strict=True):
        assert one.group == other.group
        assert [group.name for group in one.groups] == [group.name for group in other.groups]
    assert {**scored.settings, "seconds": 0} == {**audited.settings, "seconds": 0}


@pytest.mark.parametrize("door", ["audit", "score"])
@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        (
            lambda table: np.full(len(table), 0.5) + 1.0 * (np.arange(len(table)) > 1000),
            {},
            "say what the model returns",
        ),
        (rule, {"returns": "odds"}, "returns is 'odds'"),
        (rule, {"fdr": 2}, "fdr is 2"),
        (lambda table: np.full(len(table), np.nan), {}, "nan|NaN|finite"),
    ],
)
def test_the_doors_refuse_alike(door: str, model: Any, options: dict[str, Any], message: str):
    many = pd.concat([PEOPLE] * 10, ignore_index=True)
    test = fairfox.fit(REFERENCE, protected="sex", columns=COLUMNS, options={"refits": 1})
    with pytest.raises(FairfoxError, match=message):  # noqa: PT012  # one of two calls
        if door == "audit":
            fairfox.audit(
                model, many, protected="sex", columns=COLUMNS, reference=REFERENCE, options={"refits": 1, **options}
            )
        else:
            fairfox.score(test, model, many, options=options)


def test_a_probability_a_rounding_error_above_one_is_a_probability_at_every_door():
    def over(table: Any) -> np.ndarray:
        return np.where(np.asarray(table["income"]) > 40, 1 + 1e-7, 0.5)

    audited = fairfox.audit(over, PEOPLE, protected="sex", columns=COLUMNS, reference=REFERENCE, options={"refits": 1})
    test = fairfox.fit(REFERENCE, protected="sex", columns=COLUMNS, options={"refits": 1})
    scored = fairfox.score(test, over, PEOPLE)
    assert audited.effect_unit == scored.effect_unit == "probability"
    assert float(audited.predictions.max()) == 1.0

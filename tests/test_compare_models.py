import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from lxml import html
from support import audited

import fairfox
from fairfox.comparison import Compared
from fairfox.errors import ModelError, OptionError
from fairfox.report.ci import as_text
from tests.schemas import assert_valid_summary

pytestmark = pytest.mark.brief

OPTIONS = {"protected": "sex", "refits": 2, "folds": 2, "seed": 3}


def steep(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 300))


def gentle(table):
    return 1 / (1 + np.exp((3200 - table["income"]) / 900))


def blind(table):
    return table["age"] / 100


def people() -> pd.DataFrame:
    """Return people of whom men earn more, and age knows nothing of sex."""
    rng = np.random.default_rng(0)
    male = np.arange(120) % 2 == 1
    income = (3000 + 400 * male + rng.normal(0, 300, 120)).round(2)
    return pd.DataFrame({"sex": np.where(male, "Male", "Female"), "income": income, "age": rng.integers(20, 80, 120)})


@pytest.fixture(scope="module")
def found() -> Compared:
    return fairfox.compare(steep, gentle, people(), names=("steep", "gentle"), **OPTIONS)


def test_the_gentler_model_is_fairer_and_it_is_said_in_words(found: Compared):
    assert found.word == "B is fairer"
    text = found.summary()
    assert "A is steep, B is gentle; test 'rank', protected: sex" in text
    assert f"Verdict: B is fairer. {found.reason}" in text
    start = r"On the same 120 people the mean size of the effect is [\d.]+ points with A and [\d.]+ points with B; "
    assert re.match(start + r"the 95 % interval of the difference is -[\d.]+ points to -[\d.]+ points\.$", found.reason)
    assert "Alignment share (of the model's local variation, the share along sex): " in text


def test_of_the_same_model_twice_there_is_no_difference():
    found = fairfox.compare(gentle, gentle, people(), **OPTIONS)
    assert found.word == "cannot tell"
    start = r"Both models give each person the same score: the mean size of the effect of 120 people is [\d.]+ points, "
    assert re.match(start + r"and there is no difference\.$", found.reason)


def test_both_were_audited_with_the_same_options_on_the_same_people(found: Compared):
    alone = audited(gentle, people(), **OPTIONS)
    assert found.b.record.scores.tolist() == alone.scores.tolist()
    assert found.pair.means == pytest.approx([float(one.record.scores.mean()) for one in (found.a, found.b)])
    # log-odds move alike by a third of as much: nobody is treated more unequally but where the curve is flat
    assert found.pair.less > 0.9


def test_the_files_hold_what_was_found(found: Compared, tmp_path: Path):
    paths = {path.name: path for path in found.write(tmp_path / "out")}
    assert list(paths) == ["summary.json", "report.html", "report.json", "junit.xml", "summary.md", "people.parquet"]
    heading, why, *lines = paths["summary.md"].read_text("utf-8").rstrip("\n").split("\n\n")
    assert heading == "## fairfox: B is fairer"
    assert why == as_text(found.reason)
    assert lines[:2] == [as_text(line) for line in found.summary().splitlines()[2:4]]
    fields = assert_valid_summary(paths["summary.json"].read_text(), "compare")
    assert fields["word"] == found.word
    assert fields["sides"]["a"]["people"] == 120
    assert fields["sides"]["a"]["name"] == "steep"
    assert fields["sides"]["b"]["mean_score"] == found.pair.means[1]
    assert fields["difference"]["upper"] == found.pair.difference.upper
    table = pq.read_table(paths["people.parquet"])
    assert table.num_rows == 120
    apart = np.subtract(table["score_b"].to_numpy(), table["score_a"].to_numpy())
    assert table["difference"].to_numpy() == pytest.approx(apart)
    assert apart.mean() == pytest.approx(fields["difference"]["value"])
    assert table["flagged_a"].to_pylist() == found.a.flagged.tolist()


def test_the_page_shows_both_and_the_people_for_whom_most_changed(found: Compared, tmp_path: Path):
    found.write(tmp_path)
    shown = json.loads((tmp_path / "report.json").read_text())
    assert (shown["kind"], shown["outcome"]) == ("compare", "passed")
    apart = np.abs(found.b.record.scores.numpy() - found.a.record.scores.numpy())
    rows = shown["people"]["rows"]
    assert [int(row[0]) for row in rows] == np.argsort(-apart, kind="stable")[:20].tolist()
    assert rows[0][3] == f"{-100 * apart.max():+.1f}"  # B is gentler, in points
    page = html.fromstring((tmp_path / "report.html").read_text())
    assert page.xpath("string(//h1)") == "B is fairer"
    assert [each.text_content() for each in page.xpath("//section[@id='changed']//tbody/tr[1]/*")] == rows[0]
    assert found.to_html(tmp_path / "again.html") == (tmp_path / "report.html").read_text()
    assert (tmp_path / "again.html").read_text() == (tmp_path / "report.html").read_text()


def test_models_of_different_columns_are_compared_on_the_same_people():
    found = fairfox.compare(
        steep, blind, people(), only_a={"columns": ["income"]}, only_b={"columns": ["age"]}, **OPTIONS
    )
    assert found.a.settings["columns"] == ["income"]
    assert found.b.settings["columns"] == ["age"]
    assert found.word == "B is fairer"
    assert found.pair.people == (120, 120)


def test_a_decision_threshold_is_held_for_both_and_no_delta():
    found = fairfox.compare(steep, gentle, people(), decision_threshold=0.5, **OPTIONS)
    assert found.a.record.decision_threshold == found.b.record.decision_threshold == 0.5
    assert found.pair.shares == pytest.approx([float(one.record.flagged.double().mean()) for one in (found.a, found.b)])
    assert found.pair.share_difference is None
    apart = found.pair.shares[1] - found.pair.shares[0]
    assert f"with B; a difference of {100 * apart:+.1f} points." in found.summary()
    assert "\nFlagged: " in found.summary()
    fields = assert_valid_summary(found.to_json(), "compare")
    assert fields["share_difference"] == {"value": apart, "error": None, "lower": None, "upper": None}
    with pytest.raises(OptionError, match=r"The decision threshold is 0\.5 for A and None for B"):
        fairfox.compare(steep, gentle, people(), only_a={"decision_threshold": 0.5}, **OPTIONS)


def test_a_delta_from_shuffled_values_is_that_of_a_and_not_looked_for_again():
    found = fairfox.compare(steep, gentle, people(), null=1, delta_from_null=True, **OPTIONS)
    assert found.a.delta == found.a.record.null.delta == found.b.delta
    assert found.b.record.null is None


def test_one_refit_cannot_tell_which_is_fairer():
    found = fairfox.compare(steep, gentle, people(), **{**OPTIONS, "refits": 1})
    assert found.word == "cannot tell"
    assert "one refit cannot show how certain the maps are" in found.summary()


def test_models_that_answer_in_different_units_are_refused():
    def dollars(table):
        return table["income"]

    with pytest.raises(OptionError, match=r"The unit is .*probability.* for A and .*value.* for B"):
        fairfox.compare(steep, dollars, people(), **OPTIONS)


@pytest.mark.parametrize("where", ["shared", "only_b"])
def test_options_that_say_nothing_about_a_comparison_are_refused(where: str):
    more = {"certify": True} if where == "shared" else {"only_b": {"certify": True}}
    with pytest.raises(OptionError, match="certify says nothing about a comparison"):
        fairfox.compare(steep, gentle, people(), **OPTIONS, **more)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Comparing two models needs a protected column"),
        ({"protected": "sex", "margin": 0.1}, "margin is an option for two stored audits"),
    ],
)
def test_what_lacks_or_belongs_to_stored_audits_is_refused(options, message: str):
    with pytest.raises(OptionError, match=message):
        fairfox.compare(steep, gentle, people(), **options)


@pytest.mark.parametrize(("models", "side"), [(("broken", "gentle"), "A"), (("gentle", "broken"), "B")])
def test_the_model_that_failed_is_named(models: tuple[str, str], side: str):
    def broken(table):
        raise ZeroDivisionError("no weights")

    named = {"broken": broken, "gentle": gentle}
    with pytest.raises(ModelError, match=rf"^Model {side}: .*ZeroDivisionError: no weights"):
        fairfox.compare(*(named[name] for name in models), people(), **OPTIONS)

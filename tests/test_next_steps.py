"""The suggested feature is the one that carries the effect, and what it costs is what it costs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.compose import make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from torch import Tensor, nn

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, ShapeError
from fairfox.explain import effect_by_feature, group_distance
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import Model
from fairfox.models.wrap import as_model
from fairfox.next_steps import MOST_PEOPLE, next_steps
from fairfox.steps import NextSteps
from fairfox.synthetic.scm import ABILITY, SEX, Values, Variable, World, happens

EASY = LinearMember(torch.tensor([[2.0, 1.0, 0.0]]), torch.zeros(1))  # f(x) = 2 a + b


# One strong proxy of sex; `rent` follows the proxy and `hours` follows sex a little, `skill` and `age` do not.


def _district(sex: Values, noise: Values) -> Values:
    return 1.6 * sex + noise


def _rent(district: Values, noise: Values) -> Values:
    return 0.5 * district + noise


def _hours(sex: Values, ability: Values, noise: Values) -> Values:
    return 0.4 * sex + 0.6 * ability + noise


def _skill(ability: Values, noise: Values) -> Values:
    return 0.8 * ability + 0.6 * noise


def _age(noise: Values) -> Values:
    return noise


def _decoy(sex: Values, noise: Values) -> Values:
    return 4.0 * sex + noise


def _hired(district: Values, hours: Values, skill: Values, noise: Values) -> Values:
    return happens(noise, 1.4 * district + 0.5 * hours + 0.8 * skill - 1.2)


HIRING = World(
    "one strong proxy",
    (
        SEX,
        ABILITY,
        Variable("district", _district),
        Variable("rent", _rent),
        Variable("hours", _hours),
        Variable("skill", _skill),
        Variable("age", _age),
        Variable("decoy", _decoy),
        Variable("hired", _hired, lambda generator, n: generator.random(n)),
    ),
    label="hired",
)


def people_of(seed: int, columns: list[str], count: int = 700) -> Dataset:
    values = HIRING.sample(count, seed=seed).values
    x = np.stack([(values[name] - values[name].mean()) / values[name].std() for name in columns], axis=1)
    return Dataset.from_arrays(x, values["sex"], values["hired"], names=columns)


def advised(target: Model, data: Dataset, **options: Any) -> NextSteps:
    """Return next steps as an audit by `rank` leads to them."""
    mapped = RankMap().fit(data).map(data).rows
    some = slice(0, 100)
    each = effect_by_feature(target, data.x[some], mapped[None, some], data.features)
    contributions = dict(zip([f.name for f in data.features], each.abs().mean(0).tolist(), strict=True))
    return next_steps(target, data, mapped, contributions, **options)


def by_hand() -> tuple[Dataset, Tensor, dict[str, float]]:
    """Return four people whose a moves by 1 and b by -0.5: the effect of 2 a + b is 2 - 0.5 = 1.5."""
    x = torch.tensor([[0.0, 0.0, 5.0], [1.0, 2.0, 6.0], [2.0, 1.0, 7.0], [3.0, 3.0, 8.0]])
    data = Dataset.from_arrays(x, [0, 0, 1, 1], names=["a", "b", "c"])
    return data, x + torch.tensor([1.0, -0.5, 0.0]), {"a": 2.0, "b": 0.5, "c": 0.0}


def test_the_suggested_feature_is_the_one_strong_proxy_in_20_of_20_seeds():
    suggested = []
    for seed in range(20):
        columns = np.random.default_rng(seed).permutation(["district", "rent", "hours", "skill", "age"]).tolist()
        data = people_of(seed, columns)
        assert data.y is not None
        model = LogisticRegression().fit(data.x.numpy(), data.y.numpy())
        found = advised(as_model(model, example=data.x), data, estimator=model, seed=seed)
        assert found.suggestion is not None
        assert {step.method for step in found.steps} == {"as it is", "re-trained"}
        suggested.append(found.suggestion.feature)
        dropped = next(step for step in found.steps if (step.feature, step.way) == ("district", "dropped"))
        assert dropped.cost is not None
        assert dropped.cost > 0.02  # the label does depend on it
    assert suggested == ["district"] * 20


def test_a_decoy_that_differs_more_between_the_groups_is_not_suggested_where_the_model_hardly_uses_it():
    columns = ["decoy", "district", "hours", "skill"]
    weights = torch.tensor([0.02, 1.0, 0.2, 0.8], dtype=torch.float64)
    for seed in range(20):
        data = people_of(seed, columns, 400)
        women, men = data.x[data.c[:, 0] == 0], data.x[data.c[:, 0] == 1]
        assert columns[int(group_distance(women, men, data.features).argmax())] == "decoy"
        target = as_model(lambda x: 1 / (1 + np.exp(-x @ weights.numpy())), example=data.x)
        found = advised(target, data, seed=seed)
        assert found.suggestion is not None
        assert found.suggestion.feature == "district"
        assert found.suggestion.share > 0.5
        assert found.train_fair is None


def test_shares_of_a_linear_model_are_as_worked_by_hand():
    data, mapped, contributions = by_hand()
    found = next_steps(EASY, data, mapped, contributions)
    shares = {(step.feature, step.way): step.share for step in found.steps}
    # without a: |-0.5| of 1.5 is left; without b: 2 of 1.5, a third more
    assert shares == pytest.approx(
        {("a", "repaired"): 2 / 3, ("a", "dropped"): 2 / 3, ("b", "repaired"): -1 / 3, ("b", "dropped"): -1 / 3}
    )
    assert found.effect == pytest.approx(1.5)
    changes = {(step.feature, step.way): step.change for step in found.steps}
    assert changes["a", "repaired"] == pytest.approx(1.0)  # a is half a unit higher
    assert changes["b", "repaired"] == pytest.approx(0.25)
    assert found.suggestion is not None
    assert (found.suggestion.feature, found.suggestion.way) == ("a", "repaired")  # as much as dropping, for less
    assert found.sentence == (
        'Repairing "a" would take away 67 % of the effect and change predictions by 1 on average (the model as it is).'
    )


@given(scale=st.floats(1e-3, 1e3), batch_size=st.integers(1, 9), order=st.permutations(range(4)))
@settings(max_examples=20, deadline=None)
def test_shares_depend_neither_on_units_nor_on_batches_nor_on_the_order_of_people(
    scale: float, batch_size: int, order: list[int]
):
    data, mapped, contributions = by_hand()
    plain = next_steps(EASY, data, mapped, contributions)
    scaled = LinearMember(scale * torch.tensor([[2.0, 1.0, 0.0]]), torch.zeros(1))
    other = next_steps(scaled, data[torch.tensor(order)], mapped[order], contributions, batch_size=batch_size)
    assert [step.share for step in other.steps] == pytest.approx([step.share for step in plain.steps], rel=1e-4)


def test_abstained_people_say_nothing_and_weights_count():
    data, mapped, contributions = by_hand()
    mapped = mapped.clone()
    mapped[3] = 1000.0
    mapped[2] = data.x[2]  # no effect at all
    gone = torch.tensor([False, False, False, True])
    weighted = Dataset(data.x, data.c, data.protected, data.features, weights=torch.tensor([1.0, 1.0, 4.0, 1.0]))
    assert next_steps(EASY, data, mapped, contributions, abstained=gone).effect == pytest.approx(1.0)
    assert next_steps(EASY, weighted, mapped, contributions, abstained=gone).effect == pytest.approx(0.5)


def table_of_applicants(count: int = 400) -> pd.DataFrame:
    rng = np.random.default_rng(3)
    sex = rng.random(count) < 0.5
    district = np.where(rng.random(count) < np.where(sex, 0.8, 0.25), "north", "south")
    skill = rng.normal(50.0, 10.0, count)
    skill[::17] = np.nan
    odds = 2.5 * (district == "north") + 0.05 * (np.nan_to_num(skill, nan=50.0) - 50) - 1.2
    hired = np.where(rng.random(count) < 1 / (1 + np.exp(-odds)), "yes", "no")
    return pd.DataFrame({"sex": np.where(sex, "m", "f"), "district": district, "skill": skill.round(1), "hired": hired})


def test_a_pipeline_with_named_columns_and_text_labels_is_trained_again():
    from sklearn.impute import SimpleImputer

    frame = table_of_applicants()
    table = load_table(frame)
    encoding = fit_encoding(table, protected=["sex"], label="hired", dtype=torch.float64)
    data = encoding.encode(table)
    parts = make_column_transformer(
        (OneHotEncoder(), ["district"]), (make_pipeline(SimpleImputer(), StandardScaler()), ["skill"])
    )
    model = make_pipeline(parts, LogisticRegression(class_weight={"yes": 1.0, "no": 1.5}))
    model.fit(frame[["district", "skill"]], frame["hired"])
    target = as_model(model, encoding, positive="no", example=data.x)  # the first class: codes and columns differ
    found = advised(target, data, estimator=model, label_values=encoding.label_values)
    assert found.not_retrained is None
    assert found.retrained_on == len(frame)
    dropped = next(step for step in found.steps if (step.feature, step.way) == ("district", "dropped"))
    assert (dropped.method, found.measure) == ("re-trained", "AUC")
    assert dropped.share > 0.8
    assert dropped.accuracy_before is not None
    assert dropped.accuracy_before > 0.7  # of "no", the class that is audited
    assert dropped.cost is not None
    assert dropped.cost > 0.05
    assert found.suggestion is not None
    assert found.suggestion.feature == "district"
    assert json.loads(json.dumps(found.as_dict()))["suggestion"]["feature"] == "district"


def test_an_estimator_that_cannot_be_trained_again_is_estimated_and_says_why():
    data = people_of(0, ["district", "skill"], 300)
    assert data.y is not None

    class Stubborn(LogisticRegression):
        def fit(self, x: Any, y: Any, sample_weight: Any = None) -> Any:
            if len(x) < 300:
                raise RuntimeError("too few rows\nfor me")
            return super().fit(x, y)

    model = Stubborn().fit(data.x.numpy(), data.y.numpy())
    found = advised(as_model(model, example=data.x), data, estimator=model)
    assert found.not_retrained == "RuntimeError: too few rows"
    assert found.retrained_on == 0
    assert {step.method for step in found.steps if step.way == "dropped"} == {"estimated"}
    assert found.measure == "AUC"  # of the model as it is


def test_training_again_leaves_the_global_generator_alone_and_gives_the_same_twice():
    data = people_of(1, ["district", "skill"], 200)
    assert data.y is not None
    model = RandomForestClassifier(3, max_depth=3).fit(data.x.numpy(), data.y.numpy())
    target = as_model(model, example=data.x)
    before = np.random.get_state()[1].tolist()  # type: ignore[union-attr, index]  # noqa: NPY002
    first, second = (advised(target, data, estimator=model) for _ in range(2))
    assert np.random.get_state()[1].tolist() == before  # type: ignore[union-attr, index]  # noqa: NPY002
    assert first == second


def test_a_regression_is_held_against_its_numbers():
    data = people_of(2, ["district", "skill", "age"], 300)
    y = (3 * data.x[:, 0] + data.x[:, 1]).double()
    data = Dataset(data.x, data.c, data.protected, data.features, y=y)
    model = LinearRegression().fit(data.x.numpy(), y.numpy())
    found = advised(as_model(model, returns="value", example=data.x), data, estimator=model)
    assert found.measure == "R²"
    dropped = next(step for step in found.steps if (step.feature, step.way) == ("district", "dropped"))
    assert dropped.accuracy_before == pytest.approx(1.0)
    assert dropped.cost == pytest.approx(0.9, abs=0.05)  # 9 of the variance of 9 + 1 was the district's
    assert found.train_fair is None  # it needs classes


def test_a_black_box_is_asked_no_more_than_it_was_said():
    asked = [0]

    def rule(x: np.ndarray) -> np.ndarray:
        asked[0] += len(x)
        return np.asarray(x[:, 0] > 0, dtype=float)

    data = people_of(0, ["district", "rent", "hours"], 3000)
    mapped = RankMap().fit(data).map(data).rows
    target = as_model(rule, example=data.x[:10])
    asked[0] = 0
    found = next_steps(target, data, mapped, {"district": 1.0, "rent": 0.5}, most_predictions=4000)
    assert asked[0] == found.predictions
    assert 3000 < asked[0] <= 4000
    assert found.people == 2000 // 19  # half of them, each in 1 + 2 * (1 + 8) versions
    asked[0] = 0
    assert next_steps(target, data, mapped, {"district": 1.0}, most_predictions=10**9).people == MOST_PEOPLE
    assert asked[0] == MOST_PEOPLE * 2 * 10


def test_train_fair_is_suggested_where_no_single_feature_takes_away_half():
    data, mapped, _ = by_hand()
    mapped = data.x + 1.0
    net = nn.Sequential(nn.Linear(3, 1))
    nn.init.ones_(net[0].weight)
    found = next_steps(as_model(net, returns="value"), data, mapped, {"a": 1.0, "b": 1.0, "c": 1.0})
    assert found.steps[0].share == pytest.approx(1 / 3, abs=1e-5)
    assert found.train_fair == (
        'No single feature takes away half of the effect: fairfox.train_fair trains a network that hides "c" in all of '
        "them together; it needs a column of true outcomes."
    )


def test_where_there_is_no_effect_nothing_is_suggested():
    data, _, contributions = by_hand()
    still = next_steps(EASY, data, data.x, contributions)
    assert still.suggestion is None
    assert still.sentence == "No single feature lowers the effect noticeably when it is dropped or repaired."
    nobody = next_steps(EASY, data, data.x, {"a": float("nan")}, abstained=torch.ones(4, dtype=torch.bool))
    assert (nobody.steps, nobody.people, nobody.suggestion) == ((), 0, None)


def test_rows_and_names_that_do_not_fit_are_refused():
    data, mapped, _ = by_hand()
    with pytest.raises(ShapeError, match=r"shape \(5, 4, 3\); expected \(4, 3\)"):
        next_steps(EASY, data, mapped.expand(5, -1, -1), {"a": 1.0})
    with pytest.raises(ColumnError, match="no feature 'zip' to drop or repair"):
        next_steps(EASY, data, mapped, {"zip": 1.0})


def test_the_example_of_the_page_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]):
    page = (Path(__file__).parent.parent / "docs/next_steps.md").read_text()
    code = re.search(r"<!-- example: lending -->\n```python\n(.*?)```", page, re.DOTALL)
    shown = re.search(r"<!-- output: lending -->\n```text\n(.*?)```", page, re.DOTALL)
    assert code
    assert shown
    exec(code[1], {})
    printed = capsys.readouterr().out
    number = re.compile(r"\d+(?:\.\d+)?")
    assert number.sub("#", printed) == number.sub("#", shown[1])
    for here, there in zip(number.findall(printed), number.findall(shown[1]), strict=True):
        last = 10.0 ** -len(there.partition(".")[2])  # machines may differ in the last digit
        assert float(here) == pytest.approx(float(there), abs=1.01 * last)

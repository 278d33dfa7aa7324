"""One feature changes as it should, on both sides alike, and nothing else does."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from fairfox.auxiliary.linear import LinearMember
from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ModelError
from fairfox.maps.rank import RankMap
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.wrap import as_model
from fairfox.repair import (
    Answers,
    People,
    anybodys,
    mean_answers,
    repaired,
    rows_a_person,
    same_for_all,
    some_of,
    trained_again,
)

NUMBER = Feature("income", "continuous", 0, 2)  # and whether it is missing
JOB = Feature("job", "categorical", 2, 4, ("clerk", "smith"))
HERE = torch.tensor([[0.0, 1.0, 1.0, 0.0], [2.0, 0.0, 0.0, 1.0], [4.0, 0.0, 0.0, 1.0], [1.0, 0.0, 0.0, 1.0]])
THERE = torch.tensor([[0.0, 1.0, 0.6, 0.4], [3.0, 0.0, 0.0, 1.0], [6.0, 0.0, 0.2, 0.8], [1.5, 0.0, 0.0, 1.0]])
ALL = People(HERE, THERE, 4)


def test_a_repaired_feature_is_half_way_on_both_sides_and_the_others_stay():
    job = repaired(ALL, JOB)
    assert job.here[0].tolist() == pytest.approx([0.0, 1.0, 0.8, 0.2])
    torch.testing.assert_close(job.here[:, JOB.columns], job.there[:, JOB.columns])
    torch.testing.assert_close(job.there[:, NUMBER.columns], THERE[:, NUMBER.columns])
    number = repaired(ALL, NUMBER)
    assert number.there[:, 0].tolist() == [0.0, 2.5, 5.0, 1.25]
    assert number.here[:, 1].tolist() == [1.0, 0.0, 0.0, 0.0]  # who is missing stays missing


def test_the_repair_of_two_groups_is_the_median_of_their_values_at_everyones_rank():
    data = Dataset.from_arrays([[0.0], [1.0], [5.0], [7.0]], c=[0, 0, 1, 1])
    there = RankMap().fit(data).map(data).rows
    assert repaired(People(data.x, there, 4), data.features[0]).here[:, 0].tolist() == [2.5, 4.0, 2.5, 4.0]


def test_everybody_gets_other_peoples_values_and_both_sides_the_same():
    several = anybodys(ALL, NUMBER, draws=3, seed=0)
    seen = torch.stack([version.here[:, 0] for version in several])  # (3, N)
    for person in range(4):
        others = [float(value) for n, value in enumerate(HERE[:, 0]) if n != person]
        assert sorted(seen[:, person].tolist()) == sorted(others)  # all three, once each
    for version in several:
        torch.testing.assert_close(version.here[:, NUMBER.columns], version.there[:, NUMBER.columns])
        torch.testing.assert_close(version.there[:, JOB.columns], THERE[:, JOB.columns])


def test_the_mean_of_answers_is_over_versions():
    first = LinearMember(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.zeros(1))
    found = mean_answers(first, [ALL, People(HERE + 2, THERE, 4)])
    assert found.here.tolist() == [1.0, 3.0, 5.0, 2.0]
    assert found.there.tolist() == [0.0, 3.0, 6.0, 1.5]


def test_only_the_first_are_asked_about_on_both_sides():
    people = People.of(HERE, THERE, torch.tensor([2, 0, 1]), most=2)
    found = Answers.of(LinearMember(torch.tensor([[1.0, 0.0, 0.0, 0.0]]), torch.zeros(1)), people)
    assert found.here.tolist() == [4.0, 0.0, 2.0]
    assert found.effect.tolist() == [2.0, 0.0]


def test_the_value_for_all_is_the_middle_known_number_or_the_most_frequent_category():
    assert same_for_all(ALL, NUMBER).here[:, :2].tolist() == [[2.0, 0.0]] * 4  # of 1, 2 and 4
    assert same_for_all(ALL, JOB).there[:, 2:].tolist() == [[0.0, 1.0]] * 4


def test_people_are_drawn_from_those_who_may_be():
    among = torch.tensor([True, False, True, True, False])
    assert sorted(some_of(among, 10, seed=0).tolist()) == [0, 2, 3]
    assert set(some_of(among, 2, seed=1).tolist()) < {0, 2, 3}


def test_mixed_categories_cost_several_rows_and_numbers_one():
    class Halves:
        blocks = (slice(0, 2),)

        def expand(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
            return x.repeat(3, 1), torch.ones(3 * len(x)), torch.arange(len(x)).repeat(3)

    mixing = BlackBoxModel(lambda x: x, decoder=Halves(), kind="table")  # type: ignore[arg-type]
    assert rows_a_person(mixing, HERE) == 3
    assert rows_a_person(LinearMember(torch.ones(1, 4), torch.zeros(1)), HERE) == 1


def test_nobody_is_judged_by_a_model_that_has_seen_them():
    class Memory(LogisticRegression):
        """Is certain about whom it has seen."""

        def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: object = None) -> Memory:
            self.seen_ = {tuple(row) for row in x}
            return super().fit(x, y)  # type: ignore[no-any-return]

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            certain = np.array([float(tuple(row) in self.seen_) for row in x])
            return np.stack([1 - certain, certain], axis=1)

    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    data = Dataset.from_arrays(x, c=(torch.arange(60) % 2).float())
    labels = np.arange(60) % 3 == 0
    model = Memory().fit(x.numpy(), labels)
    target = as_model(model, example=x)
    assert isinstance(target, BlackBoxModel)
    people = People(x, x + 1.0, 20)
    found = trained_again(model, target, people, labels, data.features, data.features[:1])
    assert found.whole.here.tolist() == [0.0] * 60
    assert found.whole.there.shape == (20,)
    assert (len(found.without), len(found.repaired)) == (1, 1)


def test_a_new_model_that_knows_other_classes_is_refused():
    class Fickle(LogisticRegression):
        def fit(self, x: np.ndarray, y: np.ndarray, sample_weight: object = None) -> Fickle:
            return super().fit(x, y if len(x) == 60 else y * 2)  # type: ignore[no-any-return]

    x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
    data, labels = Dataset.from_arrays(x, c=(torch.arange(60) % 2).float()), np.arange(60) % 2
    model = Fickle().fit(x.numpy(), labels)
    target = as_model(model, example=x)
    assert isinstance(target, BlackBoxModel)
    with pytest.raises(ModelError, match="knows other classes"):
        trained_again(model, target, People(x, x, 60), labels, data.features, data.features[:1])

import torch
from test_case import MANY, by_income, case_of
from torch import nn

from fairfox.assembly import counterfactual_rows
from fairfox.explanation import displacement, effect_through_features, strongest_proxies
from fairfox.runs import run_tests


def runs_of(case):
    return run_tests(case, [], lambda text, done: None)


def test_a_feature_is_as_strong_a_proxy_as_it_is_for_any_variable():
    found = strongest_proxies([{"age": 0.1, "income": 0.4}, {"age": 0.7, "income": 0.2}])
    assert list(found.items()) == [("age", 0.7), ("income", 0.4)]


def test_a_black_box_is_explained_for_a_sample_and_for_the_highest_scores():
    case = case_of(by_income, MANY[:400], refits=1, folds=2)
    runs = runs_of(case)
    effect = effect_through_features(case, runs)
    explained = ~effect.per_person.isnan().any(1)
    assert effect.method == "sampled Shapley values"
    assert 100 <= int(explained.sum()) <= 120
    assert bool(explained[runs.main.score.argsort(descending=True)[:20]].all())
    torch.testing.assert_close(effect.per_person[explained].sum(1), runs.main.signed[explained])
    assert float(effect.per_person[explained][:, 1].abs().max()) == 0.0  # the model does not look at age


def test_a_network_is_explained_for_everyone():
    case = case_of(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1), nn.Sigmoid()), refits=1, folds=2)
    effect = effect_through_features(case, runs_of(case))
    assert effect.method == "integrated gradients"
    assert not bool(effect.per_person.isnan().any())


def test_how_far_features_move_is_told_for_classes_only():
    runs = runs_of(case_of(by_income, refits=1, folds=2))
    far = displacement(runs, counterfactual_rows(runs))
    assert set(far) == {"income", "age"}
    assert list(far.values()) == sorted(far.values(), reverse=True)
    assert displacement(runs, None) == {}
    number = runs_of(case_of(by_income, protected="age", drop=["sex"], refits=1, folds=2))
    assert displacement(number, counterfactual_rows(number)) == {}

"""Scores that share what they can are those of the library's own tests."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import one_hot

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.benchmark.judge import Trial
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset, Feature, Truth, resample
from fairfox.fairtests.fta import FTALinear
from fairfox.fairtests.registry import make_test
from fairfox.maps.rank import RankMap
from fairfox.models.protocol import predict
from fairfox.models.torch import TorchModel

EXPERIMENT = "scoring"
SEED = 3


def people(n, seed):
    generator = torch.Generator().manual_seed(seed)
    c = (torch.rand(n, generator=generator) < 0.4).float()
    noise = torch.randn(n, 4, generator=generator)
    shift = torch.tensor([1.0, 0.5, 0.0, 0.0])
    y = (torch.rand(n, generator=generator) < 0.5).long()
    data = Dataset.from_arrays(noise + c[:, None] * shift, c, y)
    other = noise + (1 - c)[:, None] * shift
    return replace(
        data,
        truth=Truth(other, shift.expand(n, 4)[..., None]),
        w=one_hot(y, 2).to(data.x),
        covariates=(Feature("y", "categorical", 0, 2, ("0", "1")),),
    )


def network(*first):
    """A small network whose first layer is given."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 2), nn.ReLU(), nn.Linear(2, 1), nn.Sigmoid())
    with torch.no_grad():
        net[0].weight.copy_(torch.tensor(first))
        net[0].bias.fill_(0.5)
        net[2].weight.copy_(torch.tensor([[1.0, -0.5]]))
    return TorchModel(net.requires_grad_(False).eval())


@pytest.fixture(scope="module")
def targets():
    unfair = network((1.0, 0.3, 0.0, 0.5), (0.2, -0.4, 1.0, 0.0))
    return [unfair, network((0.0, 0.0, 1.0, 0.5), (0.0, 0.0, 0.2, 1.0))]


@pytest.fixture(scope="module")
def fitting():
    return people(400, 1)


@pytest.fixture(scope="module")
def auxiliary(fitting):
    trained = AuxiliaryModel(refits=1, width=8, depth=1, max_epochs=10).fit(fitting)
    return FixedAuxiliary(trained.members, trained.held_out)


def resampled(fitting):
    return resample(fitting, generator=torch.Generator().manual_seed(SEED))


def same(found, test, targets, judged):
    for target, scores in zip(targets, found, strict=True):
        measured = test.measure(target, judged)
        assert scores.isnan().tolist() == measured.abstained.tolist()
        torch.testing.assert_close(scores.nan_to_num(), measured.score)


def test_scores_of_the_papers_tests_are_those_of_the_library(experiment, targets, fitting, auxiliary):
    judged = people(60, 2)
    found = experiment.family_scores(auxiliary, targets, fitting, judged)
    for name in experiment.FAMILY:
        same(found[name], make_test(name, auxiliary=auxiliary, refits=1).fit(fitting), targets, judged)


@pytest.mark.parametrize("given", [(), ("y",)])
def test_re_trainings_of_the_rank_map_share_what_may_move(experiment, targets, given):
    fitting, judged = people(1500, 1), people(60, 2)
    (one,) = experiment.rank_maps(fitting, given, [SEED])
    assert one.plan.closed[0, 1].tolist() == [False, False, True, True]  # the last two do not depend on c
    own = RankMap(given=given).fit(resampled(fitting))  # without a gate
    rows, free = one.map(judged).rows, own.map(judged).rows
    torch.testing.assert_close(rows[:, :2], free[:, :2])
    torch.testing.assert_close(rows[:, 2:], judged.x[:, 2:])
    expected = [(predict(target, rows) - predict(target, judged.x)).abs() for target in targets]
    torch.testing.assert_close(experiment.effects(one, targets, judged), expected)


@pytest.mark.parametrize("balance", [False, True])
def test_alignment_shares_are_those_of_the_library(experiment, targets, fitting, balance):
    judged = people(60, 2)
    trained = AuxiliaryModel(refits=1, width=8, depth=1, max_epochs=10, balance=balance).fit(fitting)
    fixed = FixedAuxiliary(trained.members, trained.held_out, balance=balance)
    both = make_test("rank/a", auxiliary=fixed, refits=1).fit(fitting)
    plain = make_test("rank", refits=1).fit(fitting)
    for target, share in zip(targets, experiment.alignment_shares(fixed, targets, fitting, judged), strict=True):
        torch.testing.assert_close(both.score(target, judged), share * plain.score(target, judged))


def test_scores_without_an_auxiliary_network_are_those_of_the_library(experiment, targets, fitting):
    judged = people(60, 2)
    found = experiment.untrained_scores(targets, judged)
    for name in ("fta", "lic"):
        same(found[name], make_test(name), targets, judged)
    linear = FTALinear(auxiliary=experiment.LinearAuxiliary()).fit(resampled(fitting))
    same(experiment.linear_scores(targets, fitting, judged, seed=SEED)["fta+linear"], linear, targets, judged)


def test_fair_over_unfair_leaves_out_who_has_no_score(experiment):
    unfair, fair = torch.tensor([0.2, 0.6, torch.nan]), torch.tensor([0.1, torch.nan, 0.1])
    assert experiment.fair_over_unfair(unfair, fair) == pytest.approx(0.25)  # 0.1 / 0.4
    assert experiment.fair_over_unfair(torch.zeros(2), fair) is None


def test_known_scores_are_judged_by_the_two_targets_on_trial(experiment, targets, fitting):
    judged = people(60, 2)
    trial = Trial(fitting, judged, unfair=targets[0], fair=targets[1], threshold=1e-6)
    truth = [individual_fairness_score(target, judged) for target in targets]
    assert float(truth[1].max()) == 0.0  # the fair target sees nothing that depends on c
    perfect = experiment.judge_known(truth, trial)
    assert (perfect["ap"], perfect["rho"]) == (pytest.approx(1.0), pytest.approx(1.0))
    inverted = experiment.judge_known([torch.zeros(60), torch.ones(60)], trial)
    assert inverted["ap"] == pytest.approx(inverted["prevalence"])  # found only when everyone is flagged
    assert 0.4 < inverted["prevalence"] <= 0.5

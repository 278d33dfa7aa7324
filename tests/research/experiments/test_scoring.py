"""Scores that share what they can are those of the library's own tests."""

import pytest
import torch
from torch import nn

from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.benchmark.judge import Trial
from fairfox.benchmark.truth import individual_fairness_score
from fairfox.data.dataset import Dataset, Truth, resample
from fairfox.fairtests.fta import FTALinear
from fairfox.fairtests.registry import make_test
from fairfox.models.torch import TorchModel

EXPERIMENT = "scoring"
SEED = 3


def people(n, seed):
    generator = torch.Generator().manual_seed(seed)
    c = (torch.rand(n, generator=generator) < 0.4).float()
    noise = torch.randn(n, 4, generator=generator)
    shift = torch.tensor([1.0, 0.5, 0.0, 0.0])
    data = Dataset.from_arrays(noise + c[:, None] * shift, c)
    other = noise + (1 - c)[:, None] * shift
    return Dataset(
        x=data.x,
        c=data.c,
        protected=data.protected,
        features=data.features,
        truth=Truth(other, shift.expand(n, 4)[..., None]),
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


def test_scores_with_an_auxiliary_are_those_of_the_library(experiment, targets, fitting, auxiliary):
    judged = people(60, 2)
    found = experiment.scores_with(auxiliary, targets, fitting, judged, seed=SEED)
    assert tuple(found) == experiment.WITH
    for name in set(experiment.WITH) - {"rank/a"}:
        test = make_test(name, auxiliary=auxiliary, refits=1).fit(fitting)
        for target, scores in zip(targets, found[name], strict=True):
            measured = test.measure(target, judged)
            assert scores.isnan().tolist() == measured.abstained.tolist(), name
            torch.testing.assert_close(scores.nan_to_num(), measured.score, msg=lambda m, name=name: f"{name}: {m}")


def test_the_aligned_rank_is_the_rank_of_resampled_rows_times_the_share_of_all(experiment, targets, fitting, auxiliary):
    judged = people(60, 2)
    found = experiment.scores_with(auxiliary, targets, fitting, judged, seed=SEED)
    rank = make_test("rank", refits=1).fit(resampled(fitting))
    both = make_test("move/a", auxiliary=auxiliary, refits=1).fit(fitting)
    plain = make_test("move", auxiliary=auxiliary, refits=1).fit(fitting)
    for target, scores in zip(targets, found["rank/a"], strict=True):
        share = both.score(target, judged).sum() / plain.score(target, judged).sum()
        torch.testing.assert_close(scores, share * rank.score(target, judged))


def test_scores_without_an_auxiliary_are_those_of_the_library(experiment, targets, fitting):
    judged = people(60, 2)
    found = experiment.scores_without(targets, fitting, judged, seed=SEED)
    assert tuple(sorted(found)) == tuple(sorted(experiment.WITHOUT))
    linear = FTALinear(auxiliary=experiment.LinearAuxiliary()).fit(resampled(fitting))
    library = {name: make_test(name, refits=1).fit(resampled(fitting)) for name in ("fta", "rank", "lic")}
    for name, test in (library | {"fta+linear": linear}).items():
        for target, scores in zip(targets, found[name], strict=True):
            torch.testing.assert_close(scores, test.score(target, judged))


def test_known_scores_are_judged_by_the_two_targets_on_trial(experiment, targets, fitting):
    judged = people(60, 2)
    trial = Trial(fitting, judged, unfair=targets[0], fair=targets[1], threshold=1e-6)
    truth = [individual_fairness_score(target, judged) for target in targets]
    assert float(truth[1].max()) == 0.0  # the fair target sees nothing that depends on c
    perfect = experiment.judge_known(targets, truth, trial)
    assert (perfect.ap, perfect.rho) == (pytest.approx(1.0), pytest.approx(1.0))
    inverted = experiment.judge_known(targets, [torch.zeros(60), torch.ones(60)], trial)
    assert inverted.ap == pytest.approx(inverted.prevalence)  # found only when everyone is flagged
    assert 0.4 < inverted.prevalence <= 0.5

"""What an audit proves: worked by hand on a tent, and against brute force on trees."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from populations import people
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from support import audited
from torch import Tensor, nn

from fairfox.certificates.certify import certify
from fairfox.certificates.path import MIXES, Certificates
from fairfox.errors import OptionError
from fairfox.models.adapters import as_model
from tests.certificates.brute import tent

pytestmark = pytest.mark.brief

QUICK: dict[str, Any] = {"protected": "sex", "refits": 2, "folds": 2}
NUMBERS = ["income", "age", "debt"]
PEOPLE = people(160)
GRANTED = (PEOPLE["income"] - PEOPLE["debt"] / 2 > 2700).astype(int)
TREES = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(PEOPLE[NUMBERS], GRANTED)


# two refits take the people from 0 to 2 and 1, to 1/2 and 1/2, and the third nowhere
ROWS = torch.tensor([[[2.0], [0.5], [0.0]], [[1.0], [0.5], [0.0]]])
SCORES = torch.tensor([0.5, 0.5, 0.0])  # mean effects


def certified(*, limits: float | Tensor = 0.75, factor: float = 1.0, scores: Tensor = SCORES) -> Certificates:
    net = tent()
    return certify(
        net,
        as_model(net),
        torch.zeros(3, 1),
        ROWS,
        scores=factor * scores,
        factor=torch.full((3,), factor),
        judged=torch.tensor([True, True, False]),
        reasons=[None, None, "off the data"],
        delta=0.75,
        limits=limits,
        total=False,
        progress=lambda done: None,
    )


def assert_equal(found: Tensor, expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), equal_nan=True)


def test_a_certificate_is_the_mean_over_the_refits_of_the_largest_change():
    proved = certified()
    assert_equal(proved.largest, [1.0, 0.5, torch.nan])  # the top is on both paths of the first
    assert_equal(proved.inside, [0.5, 0.0, torch.nan])  # 1 more than the end of the first refit, 0 of the second
    assert proved.certified.tolist() == [True, True, False]
    assert proved.within.tolist() == [False, True, False]
    assert proved.worse_inside.tolist() == [False, False, False]
    assert (proved.delta, proved.total) == (0.75, False)
    assert proved.reasons == (None, None, "off the data")


def test_everyone_is_held_against_their_own_delta():
    proved = certified(limits=torch.tensor([0.4, 0.4, 0.4]))
    assert proved.worse_inside.tolist() == [True, False, False]
    assert proved.within.tolist() == [False, False, False]


def test_with_the_alignment_share_certificates_are_multiplied_as_scores_are():
    proved = certified(factor=0.25)
    assert_equal(proved.largest, [0.25, 0.125, torch.nan])
    assert_equal(proved.inside, [0.125, 0.0, torch.nan])


def test_a_score_that_rounding_has_made_larger_is_the_certificate():
    rounded = SCORES + 1e-7
    assert float(certified(scores=rounded).largest[1]) == float(rounded[1]) > 0.5


def test_a_certified_audit_has_the_same_scores_and_proves_no_less_than_they_say():
    plain, proved = (audited(TREES, PEOPLE, **QUICK, certify=c) for c in (False, True))
    assert torch.equal(plain.scores, proved.scores)
    assert (plain.certificates, plain.share_certified, plain.uncertified_by_reason) == (None, None, {})
    assert (plain.settings["certify"], proved.settings["certify"]) == (False, True)
    assert bool((proved.certificates.largest >= proved.scores).all())
    assert proved.share_certified == 1.0
    assert not bool((proved.certificates.within & proved.flagged).any())


def test_brute_force_on_the_path_never_exceeds_the_certificate_and_attains_most():
    result = audited(TREES, PEOPLE, **(QUICK | {"refits": 1}), certify=True)
    here, there = PEOPLE[NUMBERS].to_numpy(float), result.counterfactual_table[NUMBERS].to_numpy(float)
    before = TREES.predict_proba(PEOPLE[NUMBERS])[:, 1]
    rows = [pd.DataFrame(here + t * (there - here), columns=NUMBERS) for t in np.linspace(0, 1, 201)]
    changes = np.abs([TREES.predict_proba(each)[:, 1] - before for each in rows]).max(0)
    largest = result.certificates.largest.numpy()
    assert (changes <= largest + 1e-12).all()
    assert (changes >= largest - 1e-12).mean() > 0.9  # some steps are narrower than the grid
    inside = largest - result.scores.numpy()
    np.testing.assert_allclose(result.certificates.inside.numpy(), inside, atol=1e-12)  # of one refit


def test_people_whose_category_changes_have_the_reason_instead():
    frame = PEOPLE.assign(job=(PEOPLE["job"] == "nurse").astype(int))
    model = RandomForestClassifier(10, random_state=0).fit(frame[[*NUMBERS, "job"]], GRANTED)
    result = audited(model, frame, **QUICK, categorical=["job"], certify=True)
    proved = result.certificates
    missing = int((~proved.certified).sum())
    assert 0 < missing < len(PEOPLE)
    assert result.uncertified_by_reason == {MIXES: missing}
    assert [reason is None for reason in proved.reasons] == proved.certified.tolist()
    assert result.share_certified == pytest.approx(1 - missing / len(PEOPLE))


def test_of_several_contrasts_the_path_of_the_one_that_counts_is_certified():
    result = audited(TREES, PEOPLE, **(QUICK | {"protected": ["sex", "job", "age"]}), certify=True, gate=False)
    assert bool((result.certificates.largest >= result.scores).all())
    assert len(set(result.worst.tolist())) > 1


def test_of_the_total_reading_delta_is_that_of_rank():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    options = QUICK | {"columns": NUMBERS, "kind": "encoded", "returns": "value"}
    proved, rank = (audited(net, PEOPLE, **options, test=t, certify=True) for t in ("faux+ng", "rank"))
    assert (proved.certificates.total, rank.certificates.total) == (True, False)
    assert proved.certificates.delta == rank.certificates.delta == rank.delta
    torch.testing.assert_close(proved.certificates.largest, rank.certificates.largest)


@pytest.mark.parametrize(
    ("model", "found"),
    [
        (lambda table: table["income"] / 1e4, "This is a function"),
        (nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)), "Tanh"),
    ],
)
def test_what_cannot_be_certified_is_refused_before_anything_is_fitted(model: object, found: str):
    steps: list[str] = []
    with pytest.raises(OptionError, match=found):
        audited(model, PEOPLE, **QUICK, columns=NUMBERS, certify=True, progress=lambda text, done: steps.append(text))
    assert steps == ["reading the table"]

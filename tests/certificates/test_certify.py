"""The one door: every kind of model an audit sees, certified as the audit sees it."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from populations import encoded, people
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from torch import Tensor, nn

from fairfox.auxiliary.adversarial import HidingSettings
from fairfox.auxiliary.mlp import MLP
from fairfox.certificates.certify import largest_on_path
from fairfox.data.dataset import Dataset
from fairfox.data.encoding import Encoding
from fairfox.errors import DataError, ShapeError
from fairfox.maps.rank import RankMap
from fairfox.models.adapters import as_model
from fairfox.models.protocol import Model
from fairfox.remedies.hiding import train_fair
from tests.certificates.brute import at_points, close_to

PEOPLE = people(200).round({"debt": 2})
GRANTED = (PEOPLE["income"] - PEOPLE["debt"] / 2 > 2700).astype(int)
NUMBERS = ["income", "age", "debt"]
GRID = torch.linspace(0, 1, 2001, dtype=torch.float64)


def mapped(frame: pd.DataFrame, columns: list[str]) -> tuple[Encoding, Dataset, Tensor]:
    """Return the encoded people, and where rank coupling takes them."""
    encoding, data = encoded(frame, columns=columns)
    return encoding, data, RankMap().fit(data).map(data).rows


def check(model: object, target: Model, here: Tensor, there: Tensor) -> None:
    """Compare certificates with brute force on a few people."""
    path = largest_on_path(model, here, there, target=target)
    assert not bool(path.largest.isnan().any())
    brute = at_points(target, here, there, torch.cat([GRID, close_to(path.at, width=1e-3)[::7], path.at]))
    assert bool((path.largest >= brute - 1e-9).all())
    torch.testing.assert_close(path.largest, brute, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "estimator", [HistGradientBoostingClassifier(max_iter=20), RandomForestClassifier(20, random_state=0, max_depth=5)]
)
@pytest.mark.parametrize("form", ["array", "frame", "float32"])
def test_trees_of_an_audit_are_certified_on_its_own_rows(estimator: HistGradientBoostingClassifier, form: str):
    frame = PEOPLE.astype(dict.fromkeys(NUMBERS, np.float32)) if form == "float32" else PEOPLE
    features = frame[NUMBERS].to_numpy() if form == "array" else frame[NUMBERS]
    model = estimator.fit(features, GRANTED)
    encoding, data, there = mapped(frame, NUMBERS)
    target = as_model(model, encoding, example=data.x)
    check(model, target, data.x[:6], there[:6])


def test_a_network_on_columns_in_their_own_units_is_certified():
    net = MLP(3, width=16, depth=2, seed=1).member(0).double()
    net[0].weight.data *= torch.tensor([1e-3, 5e-2, 1e-3])
    encoding, data, there = mapped(PEOPLE, NUMBERS)
    target = as_model(net, encoding, returns="logit", example=data.x)
    check(net, target, data.x[:6], there[:6])


def test_a_network_on_shares_of_categories_is_certified_wherever_they_go():
    encoding, data, there = mapped(PEOPLE, [*NUMBERS, "job"])
    net = MLP(encoding.width, width=16, depth=2, seed=2).member(0).double()
    target = as_model(net, encoding, kind="encoded", returns="logit", example=data.x)
    assert bool((there[:, encoding.blocks[0]] != data.x[:, encoding.blocks[0]]).any(1)[:6].any())
    check(net, target, data.x[:6], there[:6])
    outside = there[:6] + 3 * (there[:6] - data.x[:6])  # shares below 0 are projected first
    assert bool((outside[:, encoding.blocks[0]] < 0).any())
    path = largest_on_path(net, data.x[:6], outside, target=target)
    projected = largest_on_path(net, data.x[:6], encoding.project(outside), target=target)
    torch.testing.assert_close(path.largest, projected.largest)


def test_an_unknown_category_at_one_end_jumps_there_and_only_there():
    encoding, _, _ = mapped(PEOPLE, ["job"])
    net = nn.Sequential(nn.Linear(3, 1)).double()
    net[0].weight.data, net[0].bias.data = torch.tensor([[1.0, 2.0, 4.0]]).double(), torch.zeros(1).double()
    target = as_model(net, encoding, kind="encoded", returns="value")
    empty = torch.zeros(1, 3, dtype=torch.float64)
    nurse = torch.tensor([[0.0, 1.0, 0.0]], dtype=torch.float64)
    assert largest_on_path(net, empty, nurse, target=target).largest.tolist() == [2.0]
    assert largest_on_path(net, nurse, empty, target=target).largest.tolist() == [2.0]


def test_a_fair_model_is_certified_on_its_own_rows_and_on_tables(tmp_path):
    frame = PEOPLE[["sex", *NUMBERS, "job"]].assign(granted=GRANTED)
    quick = HidingSettings(epochs=2, width=8, depth=2, batch_size=16)
    fair = train_fair(frame, label="granted", protected="sex", settings=quick)
    encoding, data, there = mapped(PEOPLE, [*NUMBERS, "job"])
    own = largest_on_path(fair, data.x.float(), there.float())  # its own encoding has as many columns
    assert not bool(own.largest.isnan().any())
    fair.net.double()
    target = as_model(fair, encoding, example=data.x)
    path = largest_on_path(fair, data.x, there, target=target)
    stays = ((there - data.x)[:, encoding.blocks[0]].abs() < 1e-9).all(1)
    assert torch.equal(~path.largest.isnan(), stays)
    some = stays.nonzero()[:4, 0]
    check(fair, target, data.x[some], there[some])


def test_rows_that_do_not_fit_are_refused():
    net = nn.Sequential(nn.Linear(2, 1))
    with pytest.raises(ShapeError, match=r"begin at \(3, 2\) and end at \(2, 2\)"):
        largest_on_path(net, torch.zeros(3, 2), torch.zeros(2, 2))
    with pytest.raises(DataError, match="infinite"):
        largest_on_path(net, torch.zeros(1, 2), torch.full((1, 2), torch.inf))

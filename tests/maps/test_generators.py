from pathlib import Path

import pytest
import torch
from populations import block, individuals, one_hot
from torch import Tensor, nn

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import DataError, FileError, OptionError
from fairfox.maps.gan import GanMap
from fairfox.maps.generators import Fitted, in_units, only_withheld, seen_columns
from fairfox.nets.mlp import MLP

BRIEF = {"steps": 20, "width": 8, "n_critic": 1, "batch": 8, "rate": 1e-3}


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def hired(withheld: bool = False) -> Dataset:
    """Return people with their sex, a number that may be missing, a constant and a category."""
    sex, gone = torch.arange(60) % 2, (torch.arange(60) % 10 == 3).double()
    pay = (normal(60) + 2 * sex) * (1 - gone)
    numbers = torch.stack([pay, gone, torch.full((60,), 7.0)], dim=1)
    x = torch.cat([one_hot(sex, 2), numbers, one_hot(torch.arange(60) % 3, 3)], dim=1)
    features = (
        block("sex", ("female", "male")),
        Feature("pay", "continuous", 2, 4),
        Feature("year", "continuous", 4, 5),
        block("job", "abc", start=5),
    )
    own = torch.tensor([withheld] * 2 + [False] * 6)
    return individuals(x, sex, features=features, withheld=own)


def doubling(columns: int) -> nn.Sequential:
    """Return a network of one layer: 2x + 1 in every column."""
    layer = nn.Linear(columns, columns).double()
    with torch.no_grad():
        layer.weight.copy_(2 * torch.eye(columns))
        layer.bias.fill_(1.0)
    return nn.Sequential(layer).requires_grad_(False)


def test_a_network_in_units_is_the_standardised_one():
    net = MLP(3, 3, width=5, depth=2, seed=4).member(0).double()
    x, centre, scale = normal(9, 3), torch.tensor([1.0, 0.0, -4.0]).double(), torch.tensor([2.0, 1.0, 0.1]).double()
    expected = (centre + scale * net((x - centre) / scale)).detach()
    torch.testing.assert_close(in_units(net, centre, scale)(x), expected)


def test_generators_see_numbers_that_vary_and_categories():
    columns, centre, scale = seen_columns(hired())
    pay = hired().x[:, 2]
    assert columns.tolist() == [0, 1, 2, 5, 6, 7]  # not the flag of what is missing, nor the constant
    torch.testing.assert_close(centre, torch.tensor([0, 0, float(pay.mean()), 0, 0, 0]).double())
    torch.testing.assert_close(scale, torch.tensor([1, 1, float(pay.std(correction=0)), 1, 1, 1]).double())
    assert seen_columns(hired(withheld=True))[0].tolist() == [2, 5, 6, 7]


def test_numbers_are_taken_as_they_are_where_that_is_asked():
    columns, centre, scale = seen_columns(hired(), standardise=False)
    assert columns.tolist() == seen_columns(hired())[0].tolist()
    assert torch.equal(centre, torch.zeros(len(columns)).double())
    assert torch.equal(scale, torch.ones(len(columns)).double())


def test_where_all_columns_are_constant_there_is_nothing_to_see():
    with pytest.raises(DataError, match="all are withheld or constant; use rank instead"):
        seen_columns(individuals(torch.ones(8, 2)))


def test_only_the_columns_of_a_generator_are_made_anew():
    fitted = Fitted(torch.tensor([0, 2]), {(0, 1): doubling(2)}, None)
    x = normal(4, 3)
    expected = torch.stack([2 * x[:, 0] + 1, x[:, 1], 2 * x[:, 2] + 1], dim=1)
    torch.testing.assert_close(fitted.generate(x, (0, 1)), expected)
    with pytest.raises(OptionError, match="No generator was trained from class 1 to class 0"):
        fitted.generate(x, (1, 0))


def test_withheld_columns_stand_alone_in_their_order():
    data = hired(withheld=True)
    alone = only_withheld(data, 0)
    assert torch.equal(alone.x, data.x[:, :2])
    assert [(f.name, f.start, f.stop) for f in alone.features] == [("sex", 0, 2)]
    assert Fitted(torch.tensor([2]), {}, None).ranks is None
    ranks = Fitted(torch.tensor([2]), {}, alone).ranks
    assert ranks is not None
    assert torch.equal(ranks.map(alone).rows, data.x[:, [1, 0]])  # the other one of two


@pytest.mark.parametrize("withheld", [False, True], ids=["plain", "withheld"])
def test_a_saved_map_comes_back_the_same(tmp_path: Path, withheld: bool):
    data = hired(withheld)
    one = GanMap(**BRIEF, seed=3).fit(data)
    one.save(tmp_path)
    back = GanMap.load(tmp_path)
    assert back == one
    assert back.checks() == one.checks()
    assert torch.equal(back.map(data).rows, one.map(data).rows)


def test_what_is_no_saved_map_is_refused(tmp_path: Path):
    with pytest.raises(FileError, match=r"There is no 'gan\.json'"):
        GanMap.load(tmp_path)
    GanMap(**BRIEF).fit(hired()).save(tmp_path)
    about = tmp_path / "gan.json"
    text = about.read_text()
    for wrong, said in [
        (text.replace('"width": 8', '"width": 9'), r"do not describe one map"),
        (text.replace('"format": 1', '"format": 7'), r"has format 7; this version of fairfox reads 1"),
        (text[:-9], r"is damaged"),
    ]:
        about.write_text(wrong)
        with pytest.raises(FileError, match=said):
            GanMap.load(tmp_path)

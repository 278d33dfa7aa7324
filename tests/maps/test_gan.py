"""FlipTest's map; training here is shorter and steeper than the defaults, on smaller networks."""

import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from populations import block, individuals, one_hot
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.errors import DataError, OptionError, ShapeError
from fairfox.maps import gan
from fairfox.maps.gan import NOT_FINITE, GanMap
from fairfox.maps.protocol import UNKNOWN, fit_maps
from fairfox.maps.rank import RankMap

NAN, INF = float("nan"), float("inf")
QUICK = {"steps": 1000, "width": 32, "n_critic": 3, "rate": 2e-4, "clip": 0.03}
BRIEF = {"steps": 20, "width": 8, "n_critic": 1, "batch": 8, "rate": 1e-3}
RACE = Protected("race", "categorical", ("a", "b", "c"))


def normal(n: int, columns: int = 2, *, seed: int = 0) -> Tensor:
    return torch.randn(n, columns, generator=torch.Generator().manual_seed(seed)).double()


@cache
def shifted() -> Dataset:
    """Return two normal groups, the second one higher by 1."""
    c = torch.arange(2000) % 2
    return Dataset.from_arrays(normal(2000, 1) + c[:, None], c=c.double())


@cache
def trained() -> GanMap:
    return GanMap(**QUICK).fit(shifted())


def three_groups() -> Dataset:
    c = torch.arange(240) % 3
    return Dataset.from_arrays(normal(240) + c[:, None], c=c.double(), protected=[RACE])


def mixed(**fields: object) -> Dataset:
    """Return people with a number that may be missing, a category, and their own group as a column."""
    n = 60
    sex, job = torch.arange(n) % 2, torch.randint(3, (n,), generator=torch.Generator().manual_seed(1))
    gone = (torch.arange(n) % 10 == 3).double()
    pay = (normal(n, 1)[:, 0] + sex) * (1 - gone)
    x = torch.cat([torch.stack([pay, gone], dim=1), one_hot(job, 3), one_hot(sex, 2)], dim=1)
    features = (
        Feature("pay", "continuous", 0, 2),
        block("job", "abc", start=2),
        block("sex", ("female", "male"), start=5),
    )
    return individuals(x, sex, features=features, **fields)


WITHHELD = torch.tensor([False] * 5 + [True] * 2)


def test_a_shift_between_two_groups_is_found_both_ways():
    # a twentieth of the default's steps, a quarter of its width, 3 steps of the critic for 5, four times the rate and
    # three times the clip: 20 % instead of 15 %, and KS up to 0.12 instead of 0.1
    data = shifted()
    change = trained().map(data).rows - data.x
    assert float(change[0::2].mean()) == pytest.approx(1.0, abs=0.2)
    assert float(change[1::2].mean()) == pytest.approx(-1.0, abs=0.2)
    assert trained().checks()["ks"] < 0.12
    assert trained().checks()["ks_unmapped"] > 0.3  # 0.38 between normals that are 1 apart
    assert trained().warnings(trained().checks()) == []


def test_generators_that_have_not_learnt_are_warned_about_with_their_numbers():
    x = normal(200)
    x[:, 1] = x[:, 0] + 0.1 * x[:, 1]  # two columns that say nearly the same
    found = GanMap(**BRIEF).fit(individuals(x))
    checks = found.checks()
    distances, errors = found.warnings(found.checks())
    assert f"features is {checks['ks']:.2f}, " in distances
    assert "(chance 0.12, before mapping" in distances  # 0.87 · sqrt(2 / 100)
    assert f"error of {checks['mse']:.3f} on them and {checks['mse_real']:.3f} on real people" in errors


def test_generators_that_diverged_are_warned_about_and_judge_nobody():
    data = mixed(withheld=WITHHELD)
    found = GanMap(**{**BRIEF, "rate": 1e30}).fit(data)
    checks = found.checks()
    assert all(math.isnan(checks[name]) for name in ("ks", "ks_worst", "mse"))
    assert 0 < checks["ks_unmapped"] < 1
    (warning,) = found.warnings(checks)
    assert warning.startswith("FlipTest's generators diverged and return rows that are not finite")
    mapped = found.map(data)
    assert mapped.abstained.all()
    assert mapped.reason == NOT_FINITE
    assert torch.equal(mapped.rows, data.x)  # withheld columns too
    assert mapped.overshoot.isfinite().all()
    some = replace(data, c=torch.cat([torch.full((1, 1), NAN).double(), data.c[1:].double()]))
    assert found.map(some).reason == f"{UNKNOWN} or {NOT_FINITE}"


def test_one_poor_direction_among_good_ones_is_warned_about():
    found = trained()
    near = {"ks": 0.1, "ks_unmapped": 0.4, "ks_chance": 0.05, "mse": 0.5, "mse_real": 0.5}
    assert found.warnings({**near, "ks_worst": 0.24}) == []
    (warning,) = found.warnings({**near, "ks_worst": 0.26})
    assert "features is 0.10, 0.26 in the worst direction (chance 0.05, before" in warning
    (warning,) = found.warnings({**near, "ks": 0.16, "ks_worst": 0.26})
    assert "mean KS distance of the features is 0.16" in warning
    (warning,) = found.warnings({**near, "ks_worst": 0.1, "mse": NAN})
    assert "diverged" in warning


def test_everyone_of_many_classes_goes_where_they_are_sent():
    data = three_groups()
    found = GanMap(**{**QUICK, "steps": 300}).fit(data)
    means = torch.stack([data.x[data.c[:, 0] == k].mean() for k in range(3)])
    for k in range(3):
        mapped = found.map(data, torch.full((240,), float(k)))
        own = data.c[:, 0] == k
        assert torch.equal(mapped.abstained, own)
        assert torch.equal(mapped.rows[own], data.x[own])
        for other in {0, 1, 2} - {k}:
            there, here = (abs(float(rows[data.c[:, 0] == other].mean() - means[k])) for rows in (mapped.rows, data.x))
            assert there < 0.6 * here
    with pytest.raises(OptionError, match=r"'race' has 3 classes; give destinations"):
        found.map(data)
    with pytest.raises(ShapeError, match=r"expected \(240,\)"):
        found.map(data, torch.zeros(3))


def test_with_a_reference_group_only_pairs_with_it_are_trained():
    data = replace(three_groups(), protected=(replace(RACE, reference=1),))
    found = GanMap(**BRIEF).fit(data)
    assert sorted(found.fitted.nets) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    with pytest.raises(OptionError, match=r"No generator was trained from class 0 to class 2"):
        found.map(data, torch.full((240,), 2.0))


@pytest.mark.parametrize(
    "wrong",
    [
        *({"steps": 0}, {"batch": 2.5}, {"rate": 0.0}, {"clip": -1.0}, {"weight": -1e-4}),
        *({name: value} for name in ("rate", "clip", "weight") for value in (INF, NAN)),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong: dict[str, float]):
    ((name, value),) = wrong.items()
    with pytest.raises(OptionError, match=rf"{name}.* {value}"):
        GanMap(**wrong)


def test_categories_become_shares_and_what_is_missing_stays_missing():
    data = mixed()
    mapped = GanMap(**BRIEF).fit(data).map(data)
    shares = mapped.rows[:, 2:5]
    torch.testing.assert_close(shares.sum(1), torch.ones(60).double())
    assert (shares >= 0).all()
    assert float(mapped.overshoot.max()) > 0  # a linear output knows no bounds
    gone = data.x[:, 1] == 1
    assert torch.equal(mapped.rows[:, 1], data.x[:, 1])
    assert torch.equal(mapped.rows[gone, 0], data.x[gone, 0])
    assert (mapped.rows[~gone, 0] != data.x[~gone, 0]).all()


def test_withheld_columns_are_set_as_their_ranks_say_and_generators_do_not_see_them():
    data = mixed(withheld=WITHHELD)
    mapped = GanMap(**BRIEF).fit(data).map(data).rows
    assert torch.equal(mapped[:, WITHHELD], data.x[:, [6, 5]])  # the other one of two
    assert torch.equal(mapped[:, WITHHELD], RankMap(only=WITHHELD).fit(data).map(data).rows[:, WITHHELD])
    blind = replace(data, x=torch.where(WITHHELD, 1.0 - data.x, data.x))
    assert torch.equal(GanMap(**BRIEF).fit(blind).map(blind).rows[:, :5], mapped[:, :5])


def test_where_all_columns_are_withheld_there_is_nothing_to_map():
    with pytest.raises(DataError, match=r"all are withheld or constant; use rank instead"):
        GanMap(**BRIEF).fit(mixed(withheld=torch.ones(7, dtype=torch.bool)))


def test_refits_of_all_variables_train_together_and_differ(monkeypatch: pytest.MonkeyPatch):
    one = three_groups()
    sex = (torch.arange(240) // 3 % 2).double()
    two = replace(
        one, c=torch.stack([one.c[:, 0], sex], dim=1), protected=(RACE, Protected("sex", "binary", ("f", "m")))
    )
    reported: list[tuple[int, int]] = []
    monkeypatch.setitem(gan._TOGETHER, "cpu", 24)
    maps = fit_maps(GanMap(**BRIEF, progress=lambda *at: reported.append(at)), two, 3, seed=0)
    assert [[each.variable for each in refits] for refits in maps] == [[0] * 3, [1] * 3]
    assert reported[-1] == (20, 20)  # 3 refits of 6 and of 2 pairs at once
    rows = [each.map(two, torch.zeros(240)).rows for each in maps[1]]
    assert not torch.allclose(rows[0], rows[1], atol=1e-3)
    again = fit_maps(GanMap(**BRIEF), two, 3, seed=0)
    assert torch.equal(again[1][2].map(two, torch.zeros(240)).rows, rows[2])
    other = fit_maps(GanMap(**BRIEF), two, 3, seed=1)
    assert not torch.allclose(other[1][2].map(two, torch.zeros(240)).rows, rows[2], atol=1e-3)


def test_too_many_generators_for_one_network_train_in_parts(monkeypatch: pytest.MonkeyPatch):
    data, to = three_groups(), torch.zeros(240)
    whole = GanMap(**BRIEF).fit(data).map(data, to).rows
    monkeypatch.setitem(gan._TOGETHER, "cpu", 4)
    reported: list[tuple[int, int]] = []
    parts = GanMap(**BRIEF, progress=lambda *at: reported.append(at)).fit(data).map(data, to).rows
    torch.testing.assert_close(parts, whole, atol=1e-4, rtol=0)
    assert (reported[0], reported[-1]) == ((1, 40), (40, 40))  # 4 and 2 generators


def test_people_without_weight_are_not_learnt_from():
    data = replace(shifted()[:100], weights=torch.arange(100) // 50 * 1.0)
    wrong = replace(data, x=torch.where(torch.arange(100)[:, None] < 50, 99.0, data.x))
    first, again = (GanMap(**BRIEF).fit(each).map(shifted()).rows for each in (data, wrong))
    assert torch.equal(first, again)

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, individuals, one_hot, people
from scipy.stats import ks_2samp
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import NotFittedError, OptionError
from fairfox.maps.rank import RankMap, maximal_coupling

NAN = float("nan")


def mapped(data: Dataset, fitting: Dataset | None = None) -> Tensor:
    return RankMap().fit(data if fitting is None else fitting).map(data).rows


def column(values: list[float], c: list[float]) -> Dataset:
    return individuals(torch.tensor(values, dtype=torch.float64)[:, None], c=c)


# --- numbers -------------------------------------------------------------------------------------------------------


def test_everyone_gets_the_value_of_their_rank_in_the_other_group():
    data = column([3, 1, 2, 10, 30, 20], [0, 0, 0, 1, 1, 1])
    assert mapped(data)[:, 0].tolist() == [30, 10, 20, 1, 3, 2]


def test_groups_of_other_sizes_are_matched_by_mid_rank():
    # mid-ranks of two people: 1/4 and 3/4; of the four others the 2nd and the 4th begin there: places 1 and 3
    data = column([1, 2, 10, 20, 30, 40], [0, 0, 1, 1, 1, 1])
    # mid-ranks of four people: 1/8, 3/8, 5/8, 7/8; of two others: places 0, 0, 1, 1
    assert mapped(data)[:, 0].tolist() == [20, 40, 1, 1, 2, 2]


def test_ties_share_their_mid_rank():
    # the three 5s take ranks 0 to 3 of four, mid-rank 1.5: place 1 of four
    data = column([5, 5, 5, 9, 10, 20, 30, 40], [0, 0, 0, 0, 1, 1, 1, 1])
    assert mapped(data)[:4, 0].tolist() == [20, 20, 20, 40]


def test_people_who_were_not_fitted_on_are_placed_between_and_beyond_the_others():
    fitting = column([1, 2, 3, 10, 20, 30], [0, 0, 0, 1, 1, 1])
    new = column([0, 1.5, 2.5, 99], [0, 0, 0, 0])
    assert mapped(new, fitting)[:, 0].tolist() == [10, 20, 30, 30]


def test_people_whose_group_is_unknown_stay_and_are_abstained():
    data = column([1, 2, 10, 20, 7], [0, 0, 1, 1, NAN])
    out = RankMap().fit(data).map(data)
    assert out.abstained.tolist() == [False] * 4 + [True]
    assert out.reason == "protected value unknown"
    assert out.rows[4, 0] == 7


SORTED = st.lists(st.integers(-50, 50), min_size=1, max_size=12)


@settings(deadline=None, max_examples=60)
@given(own=SORTED, other=SORTED, gaps=st.lists(st.floats(0.01, 5), min_size=101, max_size=101))
def test_any_rescaling_that_keeps_the_order_rescales_the_mapped_rows(
    own: list[int], other: list[int], gaps: list[float]
):
    c = [0.0] * len(own) + [1.0] * len(other)
    before = torch.tensor([*own, *other])
    rescaled = torch.tensor(gaps, dtype=torch.float64).cumsum(0)  # a strictly increasing function of -50 .. 50
    plain, scaled = (mapped(individuals(x[:, None], c=c))[:, 0] for x in (before.double(), rescaled[before + 50]))
    assert torch.equal(scaled, rescaled[plain.long() + 50])


@pytest.mark.parametrize("rescale", [np.exp, lambda v: v**3, lambda v: 1e6 + 1e3 * v], ids=["exp", "cube", "linear"])
def test_rescaling_a_column_of_the_table_rescales_the_mapped_tables(rescale):
    frame = people(200).drop(columns=["job"])
    frame["debt"] = np.round(frame["debt"] / 1000 - 1, 3)
    scaled = frame.assign(debt=rescale(frame["debt"].to_numpy()))
    tables = []
    for one in (frame, scaled):
        encoding = fit_encoding(load_table(one), protected=["sex"], dtype=torch.float64)
        tables.append(encoding.table(mapped(encoding.encode(load_table(one)))))
    place = {value: row for row, value in enumerate(frame["debt"])}
    came_from = [place[value] for value in tables[0]["debt"]]
    np.testing.assert_allclose(tables[1]["debt"], scaled["debt"].to_numpy()[came_from], rtol=1e-12, atol=1e-12)
    assert tables[0][["income", "age"]].equals(tables[1][["income", "age"]])


@settings(deadline=None, max_examples=40)
@given(values=SORTED, times=st.integers(1, 4))
def test_groups_that_do_not_differ_are_left_alone(values: list[int], times: int):
    own = torch.tensor(values, dtype=torch.float64)
    x = torch.cat([own, own.repeat(times)])[:, None]
    data = individuals(x, c=[0.0] * len(own) + [1.0] * (len(own) * times))
    assert torch.equal(mapped(data), x)


def test_the_other_groups_distribution_is_reproduced():
    generator = torch.Generator().manual_seed(0)
    first = torch.randn(5000, 2, generator=generator, dtype=torch.float64)
    second = torch.stack([first[:, 0].exp(), 3 * torch.randn(5000, generator=generator).double() + 1], dim=1).flip(0)
    data = individuals(torch.cat([first, second]), c=[0.0] * 5000 + [1.0] * 5000)
    half = torch.arange(10_000) % 2 == 0
    fresh = mapped(data[~half], data[half])  # nobody is mapped by a fit that saw them
    c = data.c[~half, 0]
    for j in range(2):
        assert ks_2samp(mapped(data)[:5000, j], second[:, j]).statistic < 0.03
        assert ks_2samp(mapped(data)[5000:, j], first[:, j]).statistic < 0.03
        assert ks_2samp(fresh[c == 0, j], second[:, j]).statistic < 0.03


def test_the_order_of_rows_does_not_matter():
    data = fit_encoding(load_table(people()), protected=["sex"]).encode(load_table(people()))
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(mapped(data[order]), mapped(data)[order], atol=1e-6, rtol=0)
    fitted = RankMap().fit(data)
    assert torch.equal(fitted.map(data[order]).rows, fitted.map(data).rows[order])


# --- categories ----------------------------------------------------------------------------------------------------


def test_categories_keep_their_share_and_move_as_little_as_possible():
    own, other = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.2, 0.4, 0.4])
    # a stays with 0.2 / 0.5, and the 0.6 that leave go to b and c in proportion to their gains 0.1 and 0.2
    expected = torch.tensor([[0.4, 0.2, 0.4], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    torch.testing.assert_close(maximal_coupling(own, other), expected)


SHARES = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(lambda s: sum(s) > 0.1)


@settings(deadline=None, max_examples=60)
@given(own=SHARES, other=SHARES)
def test_a_maximal_coupling_is_a_coupling_with_the_least_movement(own: list[float], other: list[float]):
    p, q = (torch.tensor(s, dtype=torch.float64) / sum(s) for s in (own, other))
    coupling = maximal_coupling(p, q)
    assert float(coupling.min()) >= 0
    torch.testing.assert_close(coupling.sum(1), torch.ones(4).double())
    torch.testing.assert_close(p @ coupling, q, atol=1e-12, rtol=0)
    stays = (p * coupling.diagonal()).sum()
    torch.testing.assert_close(1 - stays, (p - q).abs().sum() / 2, atol=1e-12, rtol=0)  # total variation


def test_equal_shares_move_nobody():
    p = torch.tensor([0.25, 0.75])
    assert torch.equal(maximal_coupling(p, p), torch.eye(2))


def test_the_other_groups_shares_are_reproduced_in_expectation():
    generator = torch.Generator().manual_seed(0)
    places = torch.cat([torch.randint(4, (500,), generator=generator), torch.randint(3, (300,), generator=generator)])
    x = one_hot(places, 4)
    data = individuals(x, c=[0.0] * 500 + [1.0] * 300, features=(block("job", "abcd"),))
    torch.testing.assert_close(mapped(data)[:500].mean(0), x[500:].mean(0), atol=1e-6, rtol=0)
    torch.testing.assert_close(mapped(data)[500:].mean(0), x[:500].mean(0), atol=1e-6, rtol=0)
    torch.testing.assert_close(mapped(data).sum(1), torch.ones(800).double())


def test_a_category_nobody_knows_stays_empty():
    x = one_hot([0, 1, 1, 0], 2)
    x[3] = 0.0
    data = individuals(x, features=(block("job", "ab"),))
    assert torch.equal(mapped(data)[3], torch.zeros(2).double())


# --- missing values ------------------------------------------------------------------------------------------------


def test_a_missing_number_stays_missing_and_is_no_one_elses_value():
    age = Feature("age", "continuous", 0, 2)
    x = torch.tensor([[1.0, 0], [2.0, 0], [0.0, 1], [10.0, 0], [20.0, 0], [0.0, 1]]).double()
    data = individuals(x, c=[0, 0, 0, 1, 1, 1], features=(age,))
    assert mapped(data).tolist() == [[10, 0], [20, 0], [0, 1], [1, 0], [2, 0], [0, 1]]


def test_where_one_group_has_no_value_the_others_keep_theirs():
    age = Feature("age", "continuous", 0, 2)
    x = torch.tensor([[1.0, 0], [2.0, 0], [0.0, 1], [0.0, 1]]).double()
    data = individuals(x, c=[0, 0, 1, 1], features=(age,))
    assert torch.equal(mapped(data), x)


def test_a_missing_category_is_a_category():
    job = Feature("job", "categorical", 0, 2, ("a", None))
    data = individuals(one_hot([0, 0, 1, 1], 2), c=[0, 0, 1, 1], features=(job,))
    assert torch.equal(mapped(data), one_hot([1, 1, 0, 0], 2))


# --- withheld columns ----------------------------------------------------------------------------------------------


def test_the_protected_column_of_a_model_that_uses_it_is_swapped():
    table = load_table(people())
    encoding = fit_encoding(table, protected=["sex"], columns=["sex", "income"])
    data = encoding.encode(table)
    out = encoding.table(mapped(data))
    assert out["sex"].tolist() == [{"male": "female", "female": "male"}[s] for s in people()["sex"]]


def test_the_source_of_a_cut_moves_to_the_same_rank_in_the_other_group():
    table = load_table(people())
    encoding = fit_encoding(table, protected=["age<40"], columns=["age", "income"])
    age, out = people()["age"], encoding.table(mapped(encoding.encode(table)))["age"]
    assert (out[age < 40] >= 40).all()
    assert (out[age >= 40] < 40).all()
    assert out[age < 40].corr(age[age < 40], method="spearman") > 0.99


def test_only_the_chosen_columns_are_mapped():
    data = individuals(torch.tensor([[1.0, 5.0], [2.0, 6.0]]))
    assert RankMap(only=torch.tensor([False, True])).fit(data).map(data).rows.tolist() == [[1, 6], [2, 5]]


# --- use -----------------------------------------------------------------------------------------------------------


def test_a_second_protected_variable_can_be_chosen():
    c = torch.tensor([[0.0, 1.0], [1.0, 1.0], [0.0, 0.0], [1.0, 0.0]])
    data = Dataset.from_arrays(torch.tensor([[1.0], [2.0], [3.0], [4.0]]), c=c)
    assert RankMap(variable=1).fit(data).map(data).rows[:, 0].tolist() == [3, 4, 1, 2]


def test_a_map_that_is_not_fitted_says_so():
    with pytest.raises(NotFittedError, match="This RankMap is not fitted; call fit first"):
        RankMap().map(column([1, 2], [0, 1]))


def test_more_than_two_groups_are_refused():
    race = Protected("race", "categorical", ("a", "b", "c"))
    data = Dataset.from_arrays(torch.zeros(3, 1), c=[0, 1, 2], protected=[race])
    with pytest.raises(
        OptionError, match="The rank map compares two groups; give a protected variable with two values"
    ):
        RankMap().fit(data)

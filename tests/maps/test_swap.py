"""The swap map: the protected column alone."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from populations import encoded, people

from fairfox.data.dataset import Dataset
from fairfox.data.encoding import Encoding
from fairfox.data.table import load_table
from fairfox.maps.protocol import OFF_RANGE, UNKNOWN
from fairfox.maps.rank import LACKING, SwapMap, lacks_own_column, own_columns


def swapped(encoding: Encoding, data: Dataset, to: float | None = None, *, variable: int = 0) -> pd.DataFrame:
    goal = None if to is None else torch.full((len(data),), to)
    return encoding.table(SwapMap(variable=variable).fit(data).map(data, goal).rows)


def test_the_other_sex_and_nothing_else():
    frame = people()
    encoding, data = encoded(frame, ["sex"], columns=["income", "sex", "job"])
    out = swapped(encoding, data)
    assert out["sex"].tolist() == [{"male": "female", "female": "male"}[s] for s in frame["sex"]]
    assert out["job"].tolist() == frame["job"].tolist()
    np.testing.assert_allclose(out["income"], frame["income"])


def test_another_class_of_many():
    frame = people()
    encoding, data = encoded(frame, ["job"], columns=["income", "job"])
    assert set(swapped(encoding, data, 2.0)["job"]) == {"smith"}
    stay = SwapMap().fit(data).map(data, data.c[:, 0])
    assert stay.abstained.all()
    assert torch.equal(stay.rows, data.x)


def test_the_column_of_another_protected_variable_stays():
    frame = people()
    encoding, data = encoded(frame, ["sex", "job"], columns=["sex", "job", "income"])
    out = swapped(encoding, data, 0.0, variable=1)
    assert out["sex"].tolist() == frame["sex"].tolist()
    assert set(out["job"]) == {"clerk"}
    assert own_columns(data, 0).tolist() == [True] * 2 + [False] * 4
    assert own_columns(data, 1).tolist() == [False] * 2 + [True] * 3 + [False]


def test_a_number_goes_up_by_its_standard_deviation():
    frame = people(400)
    encoding, data = encoded(frame, ["debt"], columns=["debt", "income"])
    sd = float(frame["debt"].std(ddof=0))
    mapped = SwapMap().fit(data).map(data, torch.ones(len(data)))
    went = ~mapped.abstained.numpy()
    assert went.mean() > 0.8
    assert mapped.reason == OFF_RANGE
    out = encoding.table(mapped.rows)
    up = (out["debt"] - frame["debt"])[went]
    values = np.sort(frame["debt"])
    reached = np.interp(frame["debt"][went] + sd, values[:-1], np.diff(values))  # about how far neighbours lie apart
    assert np.quantile(np.abs(up - sd) - reached, 0.8) < 0  # the rest stand before a gap and go on to the next value
    assert set(out["debt"].round(6)) <= set(frame["debt"].round(6))
    np.testing.assert_allclose(out["income"], frame["income"])


def test_the_source_of_a_cut_goes_to_the_same_rank_on_the_other_side():
    # under 25: 20, 22, 24; others: 30, 40, 50
    frame = pd.DataFrame({"age": [22, 50, 20, 40, 24, 30], "income": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]})
    encoding, data = encoded(frame, ["age<25"], columns=["age", "income"])
    out = swapped(encoding, data)
    assert out["age"].tolist() == [40, 24, 30, 22, 50, 20]
    np.testing.assert_allclose(out["income"], frame["income"])


def test_a_crossing_changes_all_its_columns():
    frame = pd.DataFrame({"sex": ["f", "f", "m", "m"] * 3, "red": ["y", "n"] * 6, "income": range(12)})
    encoding, data = encoded(frame, ["sex", "red"], columns=["sex", "red", "income"], intersections=True)
    levels = data.protected[2].levels
    out = swapped(encoding, data, float(levels.index("m & y")), variable=2)
    assert set(zip(out["sex"], out["red"], strict=True)) == {("m", "y")}


def test_a_model_without_the_column_sees_the_same_row():
    _, data = encoded(people(), ["sex"], columns=["income", "job"])
    mapped = SwapMap().fit(data).map(data)
    assert torch.equal(mapped.rows, data.x)
    assert not mapped.abstained.any()
    assert not own_columns(data, 0).any()


def with_codes(data: Dataset, codes: dict[int, float], *, variable: int = 0) -> Dataset:
    """Return people of whom some had their group inferred."""
    c = data.c.clone()
    for row, code in codes.items():
        c[row, variable] = code
    return replace(data, c=c)


def test_who_lacks_the_column_is_abstained_although_their_group_is_inferred():
    frame = people()
    frame.loc[3, "sex"] = None
    _, data = encoded(frame, ["sex"], columns=["income", "sex"])
    some = with_codes(data, {3: 1.0})
    mapped = SwapMap().fit(data).map(some)
    assert mapped.abstained.nonzero()[:, 0].tolist() == [3]
    assert mapped.reason == LACKING
    assert torch.equal(mapped.rows[3], data.x[3])
    assert lacks_own_column(some, 0).nonzero()[:, 0].tolist() == [3]
    two = SwapMap().fit(data).map(with_codes(some, {5: float("nan")}))
    assert two.abstained.nonzero()[:, 0].tolist() == [3, 5]
    assert two.reason == f"{UNKNOWN} or {LACKING}"


def test_a_missing_value_that_the_encoding_has_no_level_for_is_missing_too():
    encoding, data = encoded(people(), ["sex"], columns=["income", "sex"])
    frame = people()
    frame.loc[4, "sex"] = None
    some = with_codes(encoding.encode(load_table(frame)), {4: 0.0})
    assert some.x.shape == data.x.shape
    mapped = SwapMap().fit(data).map(some)
    assert mapped.abstained.nonzero()[:, 0].tolist() == [4]
    assert mapped.reason == LACKING


@pytest.mark.parametrize("protected", ["debt", "debt<700"])
def test_who_lacks_the_number_is_abstained_although_it_is_inferred(protected: str):
    frame = people(400)
    frame.loc[7, "debt"] = np.nan
    _, data = encoded(frame, [protected], columns=["debt", "income"])
    some = with_codes(data, {7: float(data.c[:, 0].nanmedian())})
    to = torch.ones(len(data)) if protected == "debt" else None
    swap = SwapMap().fit(data)
    before, after = swap.map(data, to), swap.map(some, to)
    assert torch.equal(before.abstained, after.abstained)
    assert torch.equal(before.rows, after.rows)
    assert LACKING in after.reason
    assert LACKING not in before.reason


def test_a_crossing_needs_all_its_columns():
    frame = pd.DataFrame({"sex": ["f", "f", "m", "m"] * 3, "red": ["y", "n"] * 6, "income": range(12)})
    frame.loc[2, "red"] = None
    _, data = encoded(frame, ["sex", "red"], columns=["sex", "red", "income"], intersections=True)
    assert [lacks_own_column(data, v).nonzero()[:, 0].tolist() for v in range(3)] == [[], [2], [2]]

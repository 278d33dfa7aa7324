"""Straight paths: the worst of their points, and the numbers trees receive on them, to the last bit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.tree import DecisionTreeRegressor

from fairfox.certificates.path import MISSING, MIXES, check_numbers, path_numbers, reasons_against, worst_points
from fairfox.data.encoding import Encoding, fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.models.adapters import BlackBoxModel

FRAME = pd.DataFrame(
    {
        "c": ["a", "b"] * 10,
        "whole": np.arange(20) * 1000,
        "tenths": np.arange(20) / 10,
        "any": np.sqrt(np.arange(20)),
        "gaps": np.where(np.arange(20) % 5 == 0, np.nan, np.arange(20.0)),
        "flagged": np.arange(20) % 2,
        "small": np.linspace(0, 1, 20, dtype=np.float32),
    }
)


def encoding(frame: pd.DataFrame = FRAME) -> Encoding:
    return fit_encoding(load_table(frame), protected=["c"], dtype=torch.float64)


OWN = encoding()
X = OWN.encode(load_table(FRAME)).x


def black_box(kind: str = "matrix", frame: pd.DataFrame = FRAME) -> BlackBoxModel:
    decoder = OWN if frame is FRAME else encoding(frame)
    return BlackBoxModel(DecisionTreeRegressor().predict, decoder=decoder, kind=kind)


@settings(max_examples=30, deadline=None)
@given(st.floats(0, 1))
def test_single_numbers_are_those_of_the_decoded_row(t: float):
    model = black_box()
    kept = torch.tensor([row for row in range(16) if row % 5 and (row + 2) % 5])  # no gaps at either end
    here, there = X[kept], X[kept + 2]  # two rows on: the flag stays
    numbers = path_numbers(model, here, there)
    expected = model.decoder.matrix(here + t * (there - here)).numpy()
    np.testing.assert_array_equal(numbers.all_at(t), expected)


def test_what_is_missing_stays_missing_and_rows_without_an_encoding_are_numbers_already():
    here = X[:1]  # a gap
    found = path_numbers(black_box(), here, here).all_at(0.5)
    assert np.isnan(found[0]).tolist() == [False, False, False, True, False, False]
    plain = BlackBoxModel(len, decoder=None, kind="encoded")
    rows = torch.tensor([[1.0, torch.nan]], dtype=torch.float64)
    np.testing.assert_array_equal(path_numbers(plain, rows, rows + 2).all_at(0.5), [[2.0, np.nan]])


def test_encoded_models_get_whole_categories():
    model = black_box("encoded")
    block = model.blocks[0]
    here = X[1:2].clone()
    here[:, block] = torch.tensor([1e-12, 1 - 1e-12], dtype=torch.float64)
    np.testing.assert_array_equal(path_numbers(model, here, X[3:4]).all_at(0.25)[0, block], [0.0, 1.0])


def test_changing_categories_and_gaps_at_one_end_have_no_certificate():
    here, there = X[[1, 1, 1, 0]], X[[3, 2, 5, 10]]  # alike; another flag; a gap; a gap at both ends
    assert reasons_against(black_box(), here, there) == [None, MIXES, MISSING, None]
    there = here.clone()
    there[0, black_box().blocks[0]] = torch.tensor([0.5, 0.5], dtype=torch.float64)
    assert reasons_against(black_box(), here, there) == [MIXES, None, None, None]
    plain = BlackBoxModel(len, decoder=None, kind="encoded")
    rows = torch.tensor([[1.0], [torch.nan], [torch.nan]])
    assert reasons_against(plain, rows, torch.tensor([[2.0], [2.0], [torch.nan]])) == [None, MISSING, None]


def test_trees_that_split_text_are_refused():
    frame = FRAME.assign(flagged=np.where(FRAME["flagged"] == 1, "yes", "no"))
    check_numbers(black_box("table", frame), np.array([0, 1, 2]))
    with pytest.raises(OptionError, match="split on 'flagged', which holds text"):
        check_numbers(black_box("table", frame), np.array([4]))
    check_numbers(black_box("encoded", frame), np.array([4]))


def test_the_worst_point_counts_and_of_equals_the_first():
    path = worst_points(
        torch.tensor([0.5, 0.5, 0.5]),
        torch.tensor([0.6, 0.5, 0.1]),
        torch.tensor([0.2, 0.8, 0.7, 0.5, 0.6]),
        owner=torch.tensor([0, 0, 0, 1, 2]),
        t=torch.tensor([0.75, 0.25, 0.5, 0.5, 0.5]),
    )
    # person 0: 0.3 at 1/4 (and a little less than -0.3 at 3/4, in float32); 1 stays; 2 is worst at the end
    torch.testing.assert_close(path.largest, torch.tensor([0.3, 0.0, 0.4]))
    torch.testing.assert_close(path.at, torch.tensor([0.25, 0.0, 1.0]))
    torch.testing.assert_close(path.end, torch.tensor([0.1, 0.0, -0.4]))

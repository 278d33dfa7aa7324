"""Fusing two blocks, and getting both back."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairfox.benchmark.fusion import Block, fuse, fused_names, keep_c, keep_y
from fairfox.errors import OptionError


def block_of(rows, features, modes, seed):
    logits = 3 * torch.randn(rows, features, modes, generator=torch.Generator().manual_seed(seed))
    return logits.softmax(2).flatten(1), Block(features * modes, features)


def test_outer_product_by_hand():
    x = fuse(torch.tensor([[0.2, 0.8]]), torch.tensor([[0.1, 0.3, 0.6]]), "outer")
    torch.testing.assert_close(x, torch.tensor([[0.02, 0.06, 0.12, 0.08, 0.24, 0.48]]))


def test_concat_by_hand():
    x = fuse(torch.tensor([[0.2, 0.8]]), torch.tensor([[1.0]]), "concat")
    assert x.tolist() == [pytest.approx([0.2, 0.8, 1.0])]


@pytest.mark.parametrize("fusion", ["concat", "outer"])
@settings(max_examples=20, deadline=None)
@given(st.integers(1, 8), st.integers(1, 7), st.integers(1, 8), st.integers(1, 7), st.integers(0, 1000))
def test_fused_then_projected_gives_both_blocks_back(fusion, features_c, modes_c, features_y, modes_y, seed):
    x_c, c = block_of(30, features_c, modes_c, seed)
    x_y, y = block_of(30, features_y, modes_y, seed + 1)
    x = fuse(x_c, x_y, fusion)
    torch.testing.assert_close(x @ keep_c(c, y, fusion), x_c, rtol=0, atol=1e-6)
    torch.testing.assert_close(x @ keep_y(c, y, fusion), x_y, rtol=0, atol=1e-6)


def test_names_say_where_a_column_comes_from():
    assert fused_names(["a"], ["b", "d"], "concat") == ["a", "b", "d"]
    assert fused_names(["a", "e"], ["b", "d"], "outer") == ["a * b", "a * d", "e * b", "e * d"]


def test_an_unknown_fusion_is_refused():
    with pytest.raises(OptionError, match="'concat' or 'outer'"):
        fuse(torch.zeros(2, 1), torch.zeros(2, 1), "sum")

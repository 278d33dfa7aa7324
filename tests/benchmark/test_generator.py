"""Generated people: their labels, their truth, their files."""

from copy import deepcopy
from functools import cache

import pytest
import torch

from fairfox.benchmark.fusion import fuse
from fairfox.benchmark.generator import SyntheticBias
from fairfox.errors import DataError, FileError, NotFittedError, OptionError
from tests.benchmark.tables import model, table

both_fusions = pytest.mark.parametrize("fusion", ["concat", "outer"])


@cache
def generator():
    return SyntheticBias.of(model(seed=1), model(columns=2, seed=2))


@both_fusions
def test_both_blocks_come_back_from_people_and_from_their_counterfactuals(fusion):
    people = generator().sample(500, bias=0.5, fusion=fusion, seed=1)
    keep_c, keep_y = generator().keep_c(fusion), generator().keep_y(fusion)
    rebuilt = fuse(people.x @ keep_c, people.x @ keep_y, fusion)
    torch.testing.assert_close(rebuilt, people.x, rtol=0, atol=1e-6)
    other = people.truth.counterfactual
    torch.testing.assert_close(other @ keep_y, people.x @ keep_y, rtol=0, atol=1e-6)  # what c does not act on
    assert float((other @ keep_c - people.x @ keep_c).abs().mean()) > 0.01


def test_the_counterfactual_has_the_same_latents_and_the_other_c():
    people = generator().sample(200, bias=0.5, seed=3)
    c, y = generator().sources
    z = torch.randn(200, 4, generator=torch.Generator().manual_seed(3))  # the latents of c are drawn first
    labels = people.c[:, 0].long()
    torch.testing.assert_close(people.x[:, : c.block.columns], c.vae.decode(z, c.vae.code(labels)))
    expected = c.vae.decode(z, c.vae.code(1 - labels))
    torch.testing.assert_close(people.truth.counterfactual[:, : c.block.columns], expected)
    assert y.block.columns == 4


@pytest.mark.parametrize("bias", [0.0, 0.5, 1.0])
def test_labels_are_as_frequent_together_as_the_joint_distribution_says(bias):
    people = generator().sample(20_000, bias=bias, seed=5)
    cells = torch.bincount((2 * people.c[:, 0] + people.y).long(), minlength=4).reshape(2, 2) / 20_000
    torch.testing.assert_close(cells.double(), generator().joint(bias), rtol=0, atol=0.015)


@both_fusions
def test_true_derivative_equals_central_differences(fusion):
    people = generator().sample(40, bias=0.5, fusion=fusion, seed=7, derivative=True)
    y = generator().sources[1]
    draws = torch.Generator().manual_seed(7)
    z_c, z_y = (torch.randn(40, 4, generator=draws) for _ in range(2))
    twin = SyntheticBias.of(*_restored(generator())).sources[0].vae.double()  # differences need double precision
    x_y = y.vae.decode(z_y, y.vae.code(people.y.long())).double()

    def x_at(step):
        return fuse(twin.decode(z_c.double(), people.c.double() + step), x_y, fusion)

    expected = (x_at(1e-6) - x_at(-1e-6)) / 2e-6
    assert people.truth.dx_dc.shape == (40, people.x.shape[1], 1)
    torch.testing.assert_close(people.truth.dx_dc[..., 0].double(), expected, rtol=1e-3, atol=1e-5)


def _restored(bias):
    return [type(s).restored(deepcopy(s.state())) for s in bias.sources]


def test_people_are_named_continuous_columns_with_a_binary_c():
    people = generator().sample(5, bias=0.5, fusion="outer")
    assert people.names[:2] == ("c: f0 mode 1 * y: f0 mode 1", "c: f0 mode 1 * y: f0 mode 2")
    assert len(set(people.names)) == people.x.shape[1] == 24
    assert {(f.kind, f.mean, f.scale) for f in people.features} == {("continuous", 0.0, 1.0)}
    assert [(p.name, p.kind, p.levels) for p in people.protected] == [("c", "binary", ("0", "1"))]
    assert people.truth.dx_dc is None  # only when asked for


def test_the_same_seed_gives_the_same_people_and_another_one_others():
    first, again, other = (generator().sample(50, bias=0.5, seed=s) for s in (1, 1, 2))
    assert torch.equal(first.x, again.x)
    assert not torch.equal(first.x, other.x)


def test_a_saved_generator_gives_the_same_people(tmp_path):
    generator().save(tmp_path / "generator.pt")
    restored = SyntheticBias.load(tmp_path / "generator.pt")
    assert torch.equal(restored.sample(20, bias=0.7, seed=4).x, generator().sample(20, bias=0.7, seed=4).x)
    assert restored.settings == generator().settings


def test_damaged_or_missing_files_are_refused(tmp_path):
    path = tmp_path / "generator.pt"
    with pytest.raises(FileError, match="There is no file"):
        SyntheticBias.load(path)
    generator().save(path)
    state = torch.load(path, weights_only=True)
    assert "torch" in state["versions"]
    torch.save(state | {"format": 99}, path)
    with pytest.raises(FileError, match="format 99"):
        SyntheticBias.load(path)
    torch.save(state | {"c": state["c"] | {"settings": state["c"]["settings"] | {"width": 5}}}, path)
    with pytest.raises(FileError, match="holds no generator"):
        SyntheticBias.load(path)
    path.write_bytes(b"nothing")
    with pytest.raises(FileError, match="holds no generator"):
        SyntheticBias.load(path)


def test_loading_runs_no_code(tmp_path):
    path = tmp_path / "generator.pt"
    torch.save({"format": print}, path)  # a function, which only unpickling could bring back
    with pytest.raises(FileError, match="UnpicklingError"):
        SyntheticBias.load(path)


def test_what_is_not_fitted_cannot_be_sampled():
    with pytest.raises(NotFittedError, match="call fit"):
        SyntheticBias().sample(5, bias=0.5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": 0}, "n is 0; expected a whole number of at least 1"),
        ({"n": 10.5}, r"n is 10\.5; expected a whole number"),
        ({"bias": "1"}, "bias is '1'; expected a number from 0"),
        ({"seed": 1.5}, r"seed is 1\.5; expected a whole number"),
        ({"fusion": "sum"}, "fusion is 'sum'; expected 'concat' or 'outer'"),
    ],
    ids=lambda value: "" if isinstance(value, str) else "-".join(value),
)
def test_what_cannot_be_sampled_is_refused(options, message):
    with pytest.raises(OptionError, match=message):
        generator().sample(**({"n": 10, "bias": 0.5} | options))


@pytest.mark.parametrize("modes", [4, (4,), (4, 3, 2), (4, 2.5), "43"])
def test_modes_are_two_whole_numbers(modes):
    with pytest.raises(OptionError, match=r"modes is .*; expected two, for c's table and for y's: modes=\(4, 3\)"):
        SyntheticBias(modes=modes)


def test_a_table_that_is_no_source_is_refused_with_what_makes_it_one():
    with pytest.raises(DataError, match=r"A dict is not a source yet; give source_of\(table, label=\.\.\.\)"):
        SyntheticBias().fit({"a": [1, 2]}, table())

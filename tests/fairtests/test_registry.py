"""The names of the fairness tests and how they are made."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from fairfox.auxiliary.linear import LinearAuxiliary, LinearMember
from fairfox.auxiliary.model import AuxiliaryModel, FixedAuxiliary
from fairfox.data.dataset import Dataset, Truth
from fairfox.errors import OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import FAux
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.fairtests.lic import LIC
from fairfox.fairtests.registry import check_auditable, make_test
from fairfox.maps.gan import GanMap
from fairfox.maps.graph import GraphMap
from fairfox.maps.move import MoveMap
from fairfox.maps.rank import RankMap
from fairfox.maps.transport import TransportMap
from fairfox.models.torch import TorchModel
from fairfox.options import FAIR_TESTS, lookup_test

MAPS = [
    name + end
    for name in ("rank", "move", "move-direct", "fliptest", "transport", "counterfactual")
    for end in ("", "/a")
]
PEERS = ["unfair_map", "unawareness"]
OPTIONS = {
    "fliptest": {"steps": 10, "width": 8},
    "counterfactual": {"graph": {"x0": ["c"]}},
    "unfair_map": {"steps": 3},
}
CLASSES = {"rank": RankMap, "fliptest": GanMap, "transport": TransportMap, "counterfactual": GraphMap}
FAUX = ["faux", "faux/s", "faux+ng", "faux+ng/s", "faux+ig", "faux+ig/s"]


def people(count=60):
    x = torch.randn(count, 3, generator=torch.Generator().manual_seed(0))
    truth = Truth(counterfactual=-x, dx_dc=torch.ones(count, 3, 1))
    return replace(Dataset.from_arrays(x, c=(x[:, 0] + 0.5 * x[:, 1] > 0).float()), truth=truth)


def test_these_are_the_tests():
    assert set(FAIR_TESTS) == {*MAPS, *FAUX, *PEERS, "fta", "fta+linear", "lic"}
    assert next(iter(FAIR_TESTS)) == "rank"


@pytest.mark.parametrize("name", FAIR_TESTS)
def test_every_test_says_what_its_number_means_in_what_unit_with_which_delta(name):
    what = lookup_test(name)
    assert what.meaning.endswith(".")
    assert what.unit
    assert 0 < what.delta < 1 or name == "unfair_map"
    assert what.of_prediction == (what.unit not in ("cosine", "loss after the attack over loss before"))


def test_an_effect_is_flagged_from_five_points():
    assert {lookup_test(name).delta for name in ("rank", "move", "move-direct")} == {0.05}


def test_an_unknown_test_is_refused_with_the_closest_name():
    with pytest.raises(OptionError, match=r"There is no fairness test 'faux\+gn'. Did you mean 'faux\+ng'\?"):
        lookup_test("faux+gn")
    with pytest.raises(OptionError, match="There is no fairness test 'shap'"):
        make_test("shap")


@pytest.mark.parametrize("name", FAUX)
def test_names_of_the_gradient_tests_choose_their_ingredients(name):
    test = make_test(name, refits=3, seed=4, batch_size=17)
    assert isinstance(test, FAux)
    assert test.normalise == ("+" in name)
    assert test.integrated == ("ig" in name)
    assert test.metric == ("covariance" if name.endswith("/s") else "identity")
    assert test.batch_size == 17
    assert isinstance(test.auxiliary, AuxiliaryModel)
    assert (test.auxiliary.refits, test.auxiliary.seed) == (3, 4)


@pytest.mark.parametrize("name", MAPS)
def test_names_of_the_effect_tests_choose_their_map(name):
    base = name.removesuffix("/a")
    test = make_test(name, refits=3, seed=4, options=OPTIONS.get(base))
    assert isinstance(test, Effect)
    assert test.aligned == name.endswith("/a")
    assert (test.refits, test.seed) == (3, 4)
    assert isinstance(test.map, CLASSES.get(base, MoveMap))
    if isinstance(test.map, MoveMap):
        assert test.map.metric == ("identity" if "direct" in name else "between")


def test_names_of_the_distance_tests_choose_their_class():
    assert isinstance(make_test("fta"), FTA)
    linear = make_test("fta+linear", refits=3, seed=4)
    assert isinstance(linear, FTALinear)
    assert isinstance(linear.auxiliary, LinearAuxiliary)
    assert (linear.auxiliary.refits, linear.auxiliary.seed) == (3, 4)


def test_only_lic_needs_the_truth_and_cannot_audit_a_table():
    assert isinstance(make_test("lic"), LIC)
    for name, what in FAIR_TESTS.items():
        if name != "lic":
            assert not what.needs_truth
            check_auditable(name)
    with pytest.raises(OptionError, match=r"lic needs each person's true counterfactual.*use rank to audit"):
        check_auditable("lic")
    with pytest.raises(OptionError, match="There is no fairness test 'lik'"):
        check_auditable("lik")


@pytest.mark.parametrize("name", FAIR_TESTS)
def test_every_test_scores_everyone(name):
    data = people()
    if lookup_test(name).needs_input:
        data = replace(
            data,
            withheld=torch.tensor([True, False, False]),
            features=(replace(data.features[0], name="c"), *data.features[1:]),
        )
    if lookup_test(name).needs_label:
        data = replace(data, y=data.c[:, 0])
    target = TorchModel(lambda x: torch.sigmoid(x @ torch.tensor([[0.3], [-0.2], [0.1]])))
    members = [LinearMember(torch.tensor([[1.0, 0.5, shift]]), torch.zeros(1)) for shift in (0.0, 0.1)]
    own = OPTIONS.get(name.removesuffix("/a"))
    test = make_test(name, auxiliary=FixedAuxiliary(members), refits=2, options=own).fit(data)
    scores = test.score(target, data)
    assert scores.shape == (60,)
    assert torch.isfinite(scores).all()
    assert (scores >= 0).all()
    measured = test.measure(target, data)
    torch.testing.assert_close(measured.score, scores)
    if measured.signed is not None:
        torch.testing.assert_close(measured.signed.abs(), scores)


def test_listing_the_tests_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys; from fairfox.fairtests.registry import FAIR_TESTS, about; about('rank'); "
        "print(sorted({'torch', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_settings_of_a_test_reach_it_and_others_are_refused():
    assert make_test("fta", options={"epsilon": 0.5, "order": 1}).epsilon == 0.5
    assert make_test("fliptest", options={"weight": 1}).map.weight == 1
    assert make_test("move", options={"carry": 0.5}).map.carry == 0.5
    for options, message in (
        ({"epsilom": 0.5}, r"and not 'epsilom'. Did you mean 'epsilon'\?"),
        ({"steps": 2.5}, "steps of fta is 2.5; expected a whole number"),
        ({"steps": True}, "steps of fta is True; expected a whole number"),
        ({"order": "two"}, "order of fta is 'two'; expected a number"),
        ({"seed": 3}, "and not 'seed'"),
    ):
        with pytest.raises(OptionError, match=message):
            make_test("fta", options=options)
    with pytest.raises(OptionError, match="needs the graph of what causes what"):
        make_test("counterfactual")

"""The names of the fairness tests and how they are made."""

import subprocess
import sys

import pytest

from fairfox.auxiliary.linear import LinearAuxiliary
from fairfox.auxiliary.model import AuxiliaryModel
from fairfox.choices.tests import FAIR_TESTS, lookup_test
from fairfox.errors import OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.faux import LIC, FAux
from fairfox.fairtests.fta import FTA, FTALinear
from fairfox.fairtests.registry import make_test
from fairfox.maps.gan import GanMap
from fairfox.maps.graph import GraphMap
from fairfox.maps.move import MoveMap
from fairfox.maps.rank import RankMap
from fairfox.maps.transport import TransportMap
from fairfox.options import AuditOptions

MAPS = [
    name + end
    for name in ("rank", "move", "move-direct", "fliptest", "transport", "counterfactual")
    for end in ("", "/a")
]
PEERS = ["unfair_map", "unawareness"]
SETTINGS = {
    "fliptest": {"steps": 10, "width": 8},
    "counterfactual": {"graph": {"x0": ["c"]}},
    "unfair_map": {"steps": 3},
}
CLASSES = {"rank": RankMap, "fliptest": GanMap, "transport": TransportMap, "counterfactual": GraphMap}
FAUX = ["faux", "faux/s", "faux+ng", "faux+ng/s", "faux+ig", "faux+ig/s"]


def test_these_are_the_tests():
    assert set(FAIR_TESTS) == {*MAPS, *FAUX, *PEERS, "fta", "fta+linear", "lic"}
    assert next(iter(FAIR_TESTS)) == "rank"


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
    test = make_test(name, refits=3, seed=4, settings=SETTINGS.get(base))
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
    assert [name for name, what in FAIR_TESTS.items() if what.needs_truth] == ["lic"]
    with pytest.raises(OptionError, match=r"lic needs true counterfactuals"):
        AuditOptions.of(protected="sex", test="lic")


def test_listing_the_tests_imports_neither_torch_nor_scikit_learn():
    code = (
        "import sys; from fairfox.choices.tests import FAIR_TESTS, lookup_test; lookup_test('rank'); "
        "print(sorted({'torch', 'sklearn', 'scipy', 'numpy'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_settings_of_a_test_reach_it_and_others_are_refused():
    assert make_test("fta", settings={"epsilon": 0.5, "order": 1}).epsilon == 0.5
    assert make_test("fliptest", settings={"weight": 1}).map.weight == 1
    assert make_test("move", settings={"carry": 0.5}).map.carry == 0.5
    for settings, message in (
        ({"epsilom": 0.5}, r"fta has no setting 'epsilom'. Did you mean 'epsilon'\?"),
        ({"steps": 2.5}, "steps of fta is 2.5; expected a whole number"),
        ({"steps": True}, "steps of fta is True; expected a whole number"),
        ({"order": "two"}, "order of fta is 'two'; expected a number"),
        ({"seed": 3}, "fta has no setting 'seed'"),
    ):
        with pytest.raises(OptionError, match=message):
            make_test("fta", settings=settings)
    with pytest.raises(OptionError, match="counterfactual needs the causal graph"):
        make_test("counterfactual")

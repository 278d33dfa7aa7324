import pyarrow as pa
import pytest

from fairfox.errors import FairfoxError
from fairfox.fitted import FittedTest
from fairfox.fitting import fit_test
from fairfox.synthetic.two_groups import LENDING

REFERENCE = LENDING.sample(300, seed=0).table.drop_columns(["approved"])
COLUMNS = [name for name in REFERENCE.column_names if name != "sex"]


@pytest.fixture(scope="module")
def fitted() -> FittedTest:
    return fit_test(REFERENCE, protected="sex", refits=2)


def test_a_test_comes_with_the_direct_and_the_total_reading_and_the_quality_of_its_auxiliary(fitted: FittedTest):
    assert list(fitted.tests) == ["rank", "move-direct"]  # rank is the total reading itself
    assert list(fit_test(REFERENCE, protected="sex", test="fta", refits=1).tests) == ["fta", "move-direct", "rank"]
    assert (fitted.quality[0].variable, fitted.quality[0].rows) == ("sex", 60)  # a fifth is held out
    assert set(fitted.proxy[0]) == set(COLUMNS)


def test_it_keeps_no_row_of_the_fitting_table(fitted: FittedTest):
    assert fitted.known.x.shape == (300, 0)
    assert fitted.known.c[:, 0].tolist() == sorted(fitted.known.c[:, 0].tolist())  # in no order that tells who


def test_the_hash_is_that_of_the_fitting_rows(fitted: FittedTest):
    changed = REFERENCE.set_column(1, COLUMNS[0], pa.array(range(300), pa.float64()))
    for table, same in ((REFERENCE.to_pandas(), True), (changed, False)):
        assert (fit_test(table, protected="sex", test="fta", refits=1).table == fitted.table) is same


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"test": "fliptest"}, "fliptest cannot be stored"),
        ({"test": "counterfactual/a", "options": {"graph": {"income": ["sex"]}}}, "counterfactual/a cannot be stored"),
        ({"test": "all"}, "holds one fitted test"),
        ({"test": "lic"}, "true counterfactual"),
        ({"test": "rnak"}, "Did you mean 'rank'"),
        ({"protected": "sexx"}, "Did you mean 'sex'"),
        ({"legitimate": ["income", *COLUMNS]}, "legitimate"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_any_work(options: dict, message: str):
    with pytest.raises(FairfoxError, match=message):
        fit_test(REFERENCE, **{"protected": "sex", **options})

import inspect
import json

import pytest

from fairfox import errors
from fairfox.errors import FairfoxError, MissingExtraError, did_you_mean, require

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, FairfoxError) and kind is not FairfoxError
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_kind_is_also_the_builtin_it_resembles_and_says_only_its_message(kind):
    builtin = kind.__bases__[1]
    assert builtin.__module__ == "builtins"
    with pytest.raises(builtin) as caught:
        raise kind("what was found; what to do")
    assert str(caught.value) == "what was found; what to do"


@pytest.mark.parametrize(
    ("name", "known", "advice"),
    [
        ("gendr", ["age", "gender", "income"], " Did you mean 'gender'?"),
        ("sex", ["Age", "Sex"], " Did you mean 'Sex'?"),  # shown as it is written
        ("zzz", ["age", "sex"], " Choose from: age, sex."),
    ],
)
def test_the_closest_name_is_suggested_or_all_are_listed(name: str, known: list[str], advice: str):
    assert did_you_mean(name, known) == advice


def test_a_long_list_of_names_is_cut():
    message = did_you_mean("zzz", [f"column{i}" for i in range(20)])
    assert message.endswith("column11, ...")
    assert "column12" not in message


def test_an_installed_package_is_imported():
    assert require("json") is json


def test_a_missing_package_names_the_command_that_installs_it():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package", extra="peers", why="to compare with it")
    assert str(caught.value) == (
        "The package 'no_such_package' is needed to compare with it but is not installed; "
        "run: pip install 'fairfox[peers]'"
    )


def test_an_extra_is_named_after_its_package_unless_said_otherwise():
    with pytest.raises(ImportError, match=r"pip install 'fairfox\[no_such_package\]'"):
        require("no_such_package")

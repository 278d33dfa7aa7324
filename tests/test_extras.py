import json

import pytest

from fairfox.errors import MissingExtraError
from fairfox.extras import require


def test_an_installed_package_is_imported():
    assert require("json") is json


def test_a_missing_package_names_the_command_that_installs_it():
    with pytest.raises(MissingExtraError) as caught:
        require("no_such_package", extra="peers", why="to compare with it")
    assert str(caught.value) == (
        "The package 'no_such_package' is needed to compare with it and not installed; "
        "run: pip install 'fairfox[peers]'"
    )


def test_an_extra_is_named_after_its_package_unless_said_otherwise():
    with pytest.raises(ImportError, match=r"pip install 'fairfox\[no_such_package\]'"):
        require("no_such_package")

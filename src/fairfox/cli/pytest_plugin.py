"""The pytest plugin: the fixture `fairfox` and the option --fairfox-out.

pytest loads it at every start, wanted or not, so it imports nothing that takes time.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pytest

if TYPE_CHECKING:
    from fairfox.result import AuditResult

_LONGEST = 100  # characters of a test's name in the name of its folder


class Fairfox:
    """What the fixture `fairfox` gives a test: audits and the assertion."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder  # of this test's reports
        self._checks = 0

    def audit(self, model: object, table: object, **options: Any) -> AuditResult:
        """Return `fairfox.audit` of the model."""
        from fairfox.pipeline import audit

        return audit(model, table, **options)

    def assert_individually_fair(self, model: object, table: object, **options: Any) -> AuditResult:
        """Return `fairfox.testing.assert_individually_fair` of the model; its report goes to --fairfox-out."""
        __tracebackhide__ = True
        from fairfox.testing import assert_individually_fair

        self._checks += 1
        if self._folder is not None:
            number = "" if self._checks == 1 else f"-{self._checks}"
            options.setdefault("out", self._folder.with_name(self._folder.name + number))
        return assert_individually_fair(model, table, **options)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --fairfox-out."""
    parser.getgroup("fairfox").addoption(
        "--fairfox-out",
        metavar="DIR",
        help="write the report of every failed check of the fixture `fairfox` to a folder in DIR",
    )


@pytest.fixture(name="fairfox")
def fairfox_fixture(request: pytest.FixtureRequest) -> Fairfox:
    """`fairfox.audit` and `fairfox.assert_individually_fair`, imported when they are first used."""
    out = request.config.getoption("--fairfox-out")
    if out is None:
        return Fairfox(None)
    return Fairfox(request.config.invocation_params.dir / out / folder_name(request.node.nodeid))


def folder_name(test: str) -> str:
    """Return a name for a test's folder, its own one: what cannot be in a file's name is distinguished by a checksum.

    Example:
        >>> folder_name("tests/test_loans.py::test_fair[biased model]")
        'tests-test_loans.py-test_fair-biased-model-98243b3f'
    """
    readable = re.sub(r"[^\w.]+", "-", test, flags=re.ASCII).strip("-")[-_LONGEST:]
    return f"{readable}-{crc32(test.encode()):08x}"

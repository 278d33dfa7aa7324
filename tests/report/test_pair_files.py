"""What a drift writes, from two audits made by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from junitparser import Failure, JUnitXml, Skipped

from fairfox.earlier import Side, drift, drift_page, read_earlier
from fairfox.errors import FileError
from fairfox.report.pair import share_sentence
from fairfox.report.pair_files import drift_files
from fairfox.result import AuditResult
from tests.schemas import assert_valid_summary
from tests.test_earlier import SETTINGS, audited, spoil, write

ONCE = {"settings": {**SETTINGS, "refits": 1}, "interval": None}


def files_of(first: AuditResult, second: AuditResult) -> dict[str, str]:
    read = [read_earlier(each) for each in (first, second)]
    one, two = (Side(name, each.summary, each.people.scores) for name, each in zip(("may", "june"), read, strict=True))
    return {name: content.decode() for name, content in drift_files(drift(first, second), (one, two)).items()}


@pytest.mark.parametrize(
    ("times", "changes", "word", "kind"),
    [(3.0, {}, "worse", [Failure]), (0.3, {}, "not worse", []), (3.0, ONCE, "cannot tell", [Skipped])],
)
def test_the_summary_and_the_build_server_say_the_verdict(times: float, changes: dict[str, Any], word: str, kind: list):
    first, second = audited(**changes), audited(times=times, **changes)
    files = files_of(first, second)
    assert list(files) == ["summary.json", "report.html", "report.json", "junit.xml", "summary.md"]
    fields, found = assert_valid_summary(files["summary.json"], "drift"), drift(first, second)
    assert fields["word"] == word
    assert fields["audits"]["second"] == {
        **{"name": "june", "people": 38},
        **{"mean_score": found.means[1], "share_flagged": found.shares[1]},
    }
    assert fields["paired"]
    assert fields["difference"]["value"] == found.means[1] - found.means[0]
    assert (fields["share_difference"]["upper"] is None) == (word == "cannot tell")
    ((case,),) = JUnitXml.fromstring(files["junit.xml"].encode())
    assert case.name == "people are treated no more unequally than before"
    assert [type(each) for each in case.result] == kind
    assert all(each.message == found.why for each in case.result)
    assert share_sentence(found).replace("p = ", "") in files["report.html"].replace("p = ", "")


def test_nothing_is_written_unless_a_folder_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    found = drift(audited(), audited(times=3.0))
    assert list(tmp_path.iterdir()) == []
    assert drift(audited(), audited(times=3.0), out="out") == found
    written = {path.name for path in (tmp_path / "out").iterdir()}
    assert written == {"summary.json", "report.html", "report.json", "junit.xml", "summary.md"}


def test_a_summary_that_is_too_poor_for_the_page_is_refused_in_one_sentence(tmp_path: Path):
    write(audited(), tmp_path / "first")
    spoil(tmp_path / "first", ["counts"], {})
    with pytest.raises(
        FileError, match=r"does not hold all that the page shows \('judged'\); make both anew"
    ) as caught:
        drift_page(tmp_path / "first", tmp_path / "first")
    assert "\n" not in str(caught.value)

"""Several commands, one results file: what each of them found, beside what the others have left there."""

from __future__ import annotations

import json
from typing import Any

from table1_bars import bars

Results = dict[str, Any]  # a results file


def check_ground(earlier: Results, about: Results) -> None:
    """Stop where a results file stands on other people or targets than those that are asked for."""
    if _ground(earlier) != _ground(about):
        raise SystemExit(
            "The results file has another seed or other settings than this run, and the two do not belong together; "
            "name another file with --out, or run the whole table with this seed first"
        )


def keep_rest(earlier: Results, found: Results) -> Results:
    """Return a results file in which some tests are replaced or added; everything else stays."""
    whole = earlier | {name: found[name] for name in ("costs",) if name in found}
    whole["results"] = _joined(earlier["results"], found["results"])
    whole["runs"] = earlier.get("runs", {}) | found["runs"]
    return _with_bars(whole)


def keep_peers(earlier: Results, found: Results) -> Results:
    """Return a whole table with the peers' tests and costs of an earlier file, where that has the same settings."""
    if "runs" not in earlier or _ground(earlier) != _ground(found):
        return found
    own = {entry["test"] for entry in found["results"]}
    peers = [entry for entry in earlier["results"] if entry["test"] not in own]
    whole = found | {name: earlier[name] for name in ("runs", "costs") if name in earlier}
    return _with_bars(whole | {"results": _joined(peers, found["results"])})


def _with_bars(whole: Results) -> Results:
    return whole | {"bars": bars(whole, whole)}


def _joined(earlier: list[Results], found: list[Results]) -> list[Results]:
    """Return all entries, setting by setting; of two for the same test the later one."""
    entries = {(e["setting"], e["test"], e["auxiliary"]): e for e in [*earlier, *found]}
    return sorted(entries.values(), key=lambda entry: str(entry["setting"]))


def _ground(about: Results) -> object:
    """Return what all entries of a file must have in common, as JSON gives it back."""
    settings = about["settings"]
    return json.loads(json.dumps([about["seed"], about["quick"], settings.get("table", settings)]))

"""Whether results are those of another run: the same numbers, or where no more can be asked, the same verdicts on bars.

With the same versions and kind of processor and no GPU, every number has to be the same to the digits of a file.
Otherwise networks train to other weights, and every bar has to keep its verdict.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Any

from runner import Results, read_json
from wording import in_words

TOLERANCE = 1e-4  # relative; files have five digits
ABOUT = ("settings", "defaults", "code", "versions", "machine")  # how results were made
KIND = ("platform", "processor")  # of a machine; files of older runs have no processor


def compare(path: Path, earlier: Path, *, timed: bool = False) -> tuple[str, bool]:
    """Return how far a results file is from an earlier one, and whether that is within the tolerance.

    Where seconds are measured (`timed`) only whole numbers, words and verdicts count.
    """
    if missing := [str(file) for file in (path, earlier) if not file.is_file()]:
        return f"there is no {missing[0]}", False
    found, before = read_json(path), read_json(earlier)
    gaps = differences(found, before, timed=timed)
    told = f"{len(gaps)} values, {sum(map(bool, gaps))} differ, the largest relative difference is {max(gaps):.2g}"
    if alike(found, before):
        same = max(gaps) <= TOLERANCE
        return f"{told}: {'' if same else 'not '}within {TOLERANCE:g}", same
    changed = [*changed_bars(found, before)]
    told += f"; other versions or processor, or a GPU: {len(changed)} bars have another verdict"
    return "\n- ".join([told, *changed]), not changed


def alike(found: Results, before: Results) -> bool:
    """Return whether numbers have to be the same: versions and processor are, and no GPU was there."""
    machine, other = found["machine"], before["machine"]
    on_gpu = "cuda" in [one["settings"].get("device", {}).get("name") for one in (found, before)]
    same = all(machine[key] == other[key] for key in KIND if key in machine and key in other)
    return same and found["versions"] == before["versions"] and not on_gpu


def differences(found: Any, before: Any, *, timed: bool = False) -> list[float]:
    """Return the relative difference of each value: infinity where a word is another one, or a value is missing."""
    one, other = (dict(leaves(value)) for value in (found, before))
    pairs = [(one.get(place), other.get(place)) for place in one | other]
    return [_difference(*pair) for pair in pairs if not (timed and float in map(type, pair))]


def _difference(one: Any, other: Any) -> float:
    numbers = {type(one), type(other)} <= {int, float}
    return 0.0 if one == other else abs(one - other) / max(abs(one), abs(other)) if numbers else inf


def leaves(value: Any, *place: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield what results hold, each with its place; neither seconds nor how the results were made."""
    if not isinstance(value, dict | list):
        yield place, value
        return
    for key, own in value.items() if isinstance(value, dict) else enumerate(value):
        if "seconds" not in str(key) and (place or key not in ABOUT):
            yield from leaves(own, *place, key)


def changed_bars(found: Results, before: Results) -> Iterator[str]:
    """Yield each bar with another verdict, or that is not in both files, with its values and their difference."""
    old, new = ({(bar.get("part"), bar["bar"]): bar for bar in one.get("bars", [])} for one in (before, found))
    for name in old | new:
        pair = [bars.get(name, {"value": None, "holds": "missing"}) for bars in (old, new)]
        if pair[0]["holds"] != pair[1]["holds"]:
            values, holds = ([bar[key] for bar in pair] for key in ("value", "holds"))
            gap = max(differences(*values))
            yield f"{name[1]}: {in_words(values)} ({gap:.2g}), holds: {holds[0]}, now {holds[1]}"

"""What a summary needs of many people, in a few numbers that can be added: sums, counts and histograms.

A sketch is a nested dictionary of numbers, and two of them are merged by adding what stands at the same place. Counts
and sums are exact. Quantiles come from a histogram whose buckets grow by a constant factor, so that a quantile is off
by no more than `ACCURACY` of its own size, whatever the order and number of merges; sizes below `SMALLEST` count as 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

Sketch = dict[str, Any]  # numbers, and dictionaries of the same kind

ACCURACY = 0.005  # of a quantile, relative to its size
SMALLEST = 1e-9
_LARGEST = 1e298  # all that is larger is in one bucket
_GROWTH = (1 + ACCURACY) / (1 - ACCURACY)
_GROUP = re.compile(r"group\[(.*)\]", re.DOTALL)


def merge(sketches: Iterable[Sketch]) -> Sketch:
    """Return one sketch of everyone, from sketches of disjoint people, added in order.

    Example:
        >>> merge([{"people": 2, "reason": {"x": 1}}, {"people": 3}])
        {'people': 5, 'reason': {'x': 1}}
    """
    out: Sketch = {}
    for sketch in sketches:
        _add(out, sketch)
    return out


def _add(total: Sketch, more: Sketch) -> None:
    for key, value in more.items():
        if isinstance(value, dict):
            _add(total.setdefault(key, {}), value)
        else:
            total[key] = total.get(key, 0) + value


def histogram(values: np.ndarray, weights: np.ndarray) -> dict[str, float]:
    """Return the weight in each bucket, by its number; what is NaN is left out, zero has the bucket "0"."""
    known = ~np.isnan(values)
    values, weights = values[known], weights[known]
    size = np.minimum(np.abs(values), _LARGEST)
    far = size > SMALLEST
    level = np.ceil(np.log(np.where(far, size, 1.0) / SMALLEST) / math.log(_GROWTH))
    place = np.where(far, np.sign(values) * np.maximum(level, 1), 0).astype(int)
    lowest = int(place.min(initial=0))
    counts = np.bincount(place - lowest, weights=weights)
    people = np.bincount(place - lowest)  # a bucket of people without weight is there all the same
    return {str(bucket + lowest): float(counts[bucket]) for bucket in people.nonzero()[0].tolist()}


def quantile(buckets: dict[str, float], share: float) -> float:
    """Return the value that this share of people is at or below, within `ACCURACY` of its size; NaN of nobody."""
    order = sorted((int(bucket), weight) for bucket, weight in buckets.items())
    total = math.fsum(weight for _, weight in order)
    if total <= 0:
        return math.nan
    reached = accumulate(weight for _, weight in order)
    places = (bucket for (bucket, weight), upto in zip(order, reached, strict=True) if upto >= share * total and weight)
    bucket = next(places, order[-1][0])  # rounding may leave the last one short of everyone
    if bucket == 0:
        return 0.0
    upper = SMALLEST * _GROWTH ** abs(bucket)
    return math.copysign(2 * upper / (1 + _GROWTH), bucket)  # as far from both ends, relatively


def sketch_of(scores: pa.RecordBatch) -> Sketch:
    """Return the sketch of a batch that `BatchScorer.score` returned, or of a table of such."""
    names = scores.schema.names
    weights = _floats(scores["weight"]) if "weight" in names else np.ones(len(scores))
    judged = ~_bools(scores["abstained"])
    predictions = _floats(scores["prediction"])
    variables = [match[1] for name in names if (match := _GROUP.fullmatch(name))]
    return {
        "people": len(scores),
        "weight": float(weights.sum()),
        "abstained": {"people": int((~judged).sum()), "weight": float(weights[~judged].sum())},
        "inferred": int(_bools(scores["group_inferred"]).sum()),
        "reasons": _counted(*_coded(scores["reason"])),
        "worst": _weighed(scores["variable"], variables, weights),
        **_marks(scores, "", judged, weights),
        "score": _sum(_floats(scores["score"]), weights),
        "signed": _sum(_floats(scores["signed"]), weights),
        "prediction": _sum(predictions, weights),
        "scores": histogram(_floats(scores["score"]), weights),
        "predictions": histogram(predictions, weights),
        "variables": {name: _of_variable(scores, name, weights) for name in variables},
    }


def _of_variable(scores: pa.RecordBatch, variable: str, weights: np.ndarray) -> Sketch:
    """Return the sketch of one protected variable: what stands in its own columns, or in the only ones there are."""
    own = f"[{variable}]" if f"score[{variable}]" in scores.schema.names else ""
    inferred = _bools(scores[f"inferred{own}" if own else "group_inferred"])
    score, signed = _floats(scores[f"score{own}"]), _floats(scores[f"signed{own}"])
    judged = ~np.isnan(score)
    towards = _coded(scores[f"towards{own}"])
    groups, place = _coded(scores[f"group[{variable}]"])
    levels = _Levels(groups, place)
    flags, sure = (levels.total(weights, judged & _bools(scores[f"{name}{own}"])) for name in ("flag", "confident"))
    people, guessed, whole = levels.count(), levels.count(inferred), levels.total(weights, judged)
    predictions = levels.sums(_floats(scores["prediction"]), weights)
    moves = levels.sums(signed, weights, judged)
    effects = {
        word: levels.sums(values, weights, judged)
        for word, values in _effects(scores, variable, own, signed, towards).items()
    }
    return {
        "inferred": int(inferred.sum()),
        "unknown": int((place < 0).sum()),
        **_marks(scores, own, judged, weights),
        "score": _sum(score, weights),
        "worst": _counted(towards.names, towards.places[judged]),
        "groups": {
            level: {
                "people": people[k],
                "inferred": guessed[k],
                "prediction": predictions[k],
                "signed": moves[k],
                "judged": whole[k],
                "flagged": flags[k],
                "confident": sure[k],
                "towards": {word: sums[k] for word, sums in effects.items() if word != level},
            }
            for k, level in enumerate(groups)
            if people[k]
        },
    }


class _Coded(NamedTuple):
    """A column of texts: those there are, and which one everyone has (N,), -1 for none."""

    names: list[str]
    places: np.ndarray


def _coded(column: pa.Array) -> _Coded:
    coded = column.dictionary_encode()
    coded = coded.combine_chunks() if isinstance(coded, pa.ChunkedArray) else coded
    places = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return _Coded(coded.dictionary.to_pylist(), places)


class _Levels:
    """Sums by group, of all groups at once."""

    def __init__(self, names: Sequence[str], places: np.ndarray) -> None:
        self.groups, self.places = len(names), places + 1  # those of no group come first

    def _add(self, values: np.ndarray | None = None) -> list[Any]:
        added: list[Any] = np.bincount(self.places, weights=values, minlength=self.groups + 1).tolist()
        return added[1:]

    def count(self, which: np.ndarray | None = None) -> list[int]:
        """Return how many people of each group there are, of some people."""
        return self._add() if which is None else list(map(int, self._add(which)))

    def total(self, weights: np.ndarray, which: np.ndarray) -> list[float]:
        """Return the weight of some people of each group."""
        return self._add(np.where(which, weights, 0.0))

    def sums(self, values: np.ndarray, weights: np.ndarray, which: np.ndarray | bool = True) -> list[Sketch]:
        """Return what `_sum` does of some people of each group."""
        known = which & ~np.isnan(values)
        added = self._add(np.where(known, values * weights, 0.0))
        return [{"sum": a, "weight": w} for a, w in zip(added, self.total(weights, known), strict=True)]


def _effects(
    scores: pa.RecordBatch, variable: str, own: str, signed: np.ndarray, towards: _Coded
) -> dict[str, np.ndarray]:
    """Return the effect towards each class, by its name."""
    if own:
        named = [(name, f"effect[{name}]") for name in _contrasts(scores, variable)]
        return {name.removeprefix(f"{variable}="): _floats(scores[column]) for name, column in named}
    found = ((word, towards.places == k) for k, word in enumerate(towards.names))
    return {word: np.where(there, signed, np.nan) for word, there in found if there.any()}


def _contrasts(scores: pa.RecordBatch, variable: str) -> list[str]:
    """Return the contrasts of a variable: the columns of effects that follow its own."""
    names, out = scores.schema.names, []
    for name in names[names.index(f"towards[{variable}]") + 1 :]:
        if not name.startswith("effect["):
            break
        out.append(name[len("effect[") : -1])
    return out


def _marks(scores: pa.RecordBatch, own: str, judged: np.ndarray, weights: np.ndarray) -> Sketch:
    """Return how many of the judged people are flagged, and how many confidently; by number and by weight."""
    out: Sketch = {"judged": {"people": int(judged.sum()), "weight": float(weights[judged].sum())}}
    for name, column in (("flagged", f"flag{own}"), ("confident", f"confident{own}")):
        if name == "confident" and scores[column].null_count == len(scores):  # one re-fit: nobody knows
            continue
        marked = _bools(scores[column]) & judged
        out[name] = {"people": int(marked.sum()), "weight": float(weights[marked].sum())}
    return out


def _sum(values: np.ndarray, weights: np.ndarray) -> Sketch:
    """Return the sum of what is known, and the weight it was taken over."""
    known = ~np.isnan(values)
    return {"sum": float((values * weights)[known].sum()), "weight": float(weights[known].sum())}


def _counted(names: Sequence[str], places: np.ndarray) -> dict[str, int]:
    """Return how many people have each name; names of nobody are left out."""
    counts = np.bincount(places + 1, minlength=len(names) + 1)[1:].tolist()
    return dict(sorted((name, count) for name, count in zip(names, counts, strict=True) if count))


def _weighed(column: pa.Array, names: Sequence[str], weights: np.ndarray) -> dict[str, float]:
    """Return the weight of the people with each name; nothing where nobody has one."""
    if column.null_count == len(column):
        return {}
    there, places = _coded(column)
    found = dict(zip(there, _Levels(there, places).total(weights, places >= 0), strict=True))
    return {name: found.get(name, 0.0) for name in names}


def _floats(column: pa.Array) -> np.ndarray:
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def _bools(column: pa.Array) -> np.ndarray:
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=bool)

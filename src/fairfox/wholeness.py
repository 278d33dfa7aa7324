"""Whether the parts of a fitted test that was read from a file fit together: their ranges, lengths and shapes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.inference import infer_groups
from fairfox.codec import FAILURES
from fairfox.crossfit import DIRECT, TOTAL
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.sources import COMPARE, Crossing, Cut, ProtectedSource, Values
from fairfox.errors import FairfoxError, FileError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.registry import FAIR_TESTS
from fairfox.fitted import FittedTest, Scored
from fairfox.maps.protocol import compared_pairs
from fairfox.maps.surfaces import Own
from fairfox.maps.transport import TransportMap
from fairfox.models.protocol import predict
from fairfox.models.wrap import as_model

_APART = "its parts do not fit together"
_MOST = 10**5  # steps or re-fits: far more than anybody waits for
_RANGES = {
    "seed": (0, 2**64 - 1),  # that random generators take
    "batch_size": (1, 2**62),
    "refits": (1, _MOST),
    "steps": (1, _MOST),
    "restarts": (1, _MOST),
}
_PEOPLE, _UNKNOWN = 100, 5  # made-up ones; those who lack what they are protected by
_FAR = 1e6  # standard deviations: farther than anybody


def check_whole(test: FittedTest, made: list[Any]) -> None:
    """Refuse a test whose parts do not fit together, before anything is as large as one of them says."""
    for one in made:
        _check_ranges(one)
    width = _checked_width(test)
    variables = tuple(s.variable for s in test.encoding.sources)
    most = max((len(p.levels) for p in variables), default=0)
    names = set(test.encoding.columns)
    right = (
        all(0 <= one.start <= one.stop <= width for one in made if isinstance(one, Feature)),
        all(0 <= one.classes <= most for one in made if isinstance(one, Own)),
        test.name in FAIR_TESTS and {test.name, DIRECT, TOTAL} == set(test.tests),
        variables == test.known.protected and len(variables) > 0,
        all(len(p.levels) <= len(test.known) and (p.is_continuous or len(p.levels) > 1) for p in variables),
        all(k is None or k in range(len(p.levels)) for p in variables for k in (p.reference, p.second)),
        all(p.second is None or p.reference not in (None, p.second) for p in variables),
        [one.variable for one in test.quality] == [p.name for p in variables],
        len(test.proxy) == len(variables) and all(set(one) == names for one in test.proxy),
        set(test.legitimate) <= names,
        test.metric.shape == (width, width),
        test.encoding.dtype == torch.float64,
        len(test.auxiliary.members) > 0,
        all(map(_reads_right, test.encoding.sources)),
        len(test.auxiliary.members) <= _MOST,
        all(_fitted_for(variables, one) for one in made if isinstance(one, Effect)),
        all(_has_ways(one, test) for one in made if isinstance(one, TransportMap) and one.scale is not None),
    )
    if not all(right):
        raise FileError(_APART)


def _check_ranges(one: object) -> None:
    """Refuse whole numbers that no test can have."""
    held = getattr(one, "__dict__", {})
    for name, (least, most) in _RANGES.items():
        if type(held.get(name)) is int and not least <= held[name] <= most:
            raise FileError(f"'{name}' in it is not within {least} and {most}")


def _checked_width(test: FittedTest) -> int:
    """Return how many columns x has, where they follow one another."""
    place = 0
    for f in test.encoding.features:
        width = len(f.levels) if f.kind == "categorical" else f.stop - f.start
        if f.start != place or f.stop - f.start != width or (f.kind == "continuous" and width not in (1, 2)):
            raise FileError("its columns do not follow one another")
        place = f.stop
    if place == 0 or len(set(test.encoding.columns)) < len(test.encoding.features):
        raise FileError("its columns do not follow one another")
    return place


def _reads_right(source: ProtectedSource) -> bool:
    """Return whether everyone who is read off a table gets a class that there is."""
    reader, classes = source.reader, range(len(source.variable.levels))
    if isinstance(reader, Cut):
        return reader.operator in ("=", "!=") or (reader.operator in COMPARE and _is_number(reader.value))
    if not isinstance(reader, Values | Crossing):
        return source.variable.is_continuous
    known = reader.values if isinstance(reader, Values) else reader.cells
    inside = all(k in classes for k in reader.classes) and (reader.rest is None or reader.rest in classes)
    return inside and len(known) == len(reader.classes) and (isinstance(reader, Values) or _crosses_right(reader))


def _crosses_right(reader: Crossing) -> bool:
    """Return whether every group of a crossing has a class of each part; crossings of crossings there are not."""
    parts = reader.parts
    apart = not any(isinstance(part.reader, Crossing) for part in parts) and all(map(_reads_right, parts))
    return apart and all(len(cell) == len(parts) for cell in reader.cells)


def _fitted_for(variables: tuple[Protected, ...], effect: Effect) -> bool:
    """Return whether there are as many maps as re-fits of every protected variable."""
    return len(effect.fitted) in (0, len(variables)) and all(len(maps) == effect.refits for maps in effect.fitted)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _has_ways(one: TransportMap, test: FittedTest) -> bool:
    """Return whether a map of pairs of people leads from every group to all that it is compared with."""
    variables = test.known.protected
    if one.variable not in range(len(variables)):
        return False
    p = variables[one.variable]
    others = len(p.levels) - 1
    expected = others + 1 if p.by_size else 2 * others if p.reference is not None else others * (others + 1)
    return expected <= len(one.ways) and set(compared_pairs(p)) <= set(one.ways)


def try_out(test: FittedTest) -> None:
    """Refuse a test that cannot measure anybody: it is tried on made-up people of every group, with a made-up model.

    What it says in a sentence of its own it will say again where it scores people, and that is no fault of the file.
    """
    try:
        data = made_up(test)
        target = as_model(_mean_of_columns, returns="probability")
        people, inferred = infer_groups(data, test.auxiliary, test.known)
        test.readings(Scored(target, data, people, inferred, predict(target, data.x)))
    except FairfoxError:
        return
    except FAILURES as error:
        raise FileError(f"{_APART} ({type(error).__name__})") from error


def _mean_of_columns(x: Tensor) -> Tensor:
    return x.mean(1, keepdim=True).sigmoid()


def made_up(test: FittedTest) -> Dataset:
    """Return people of all classes and categories, the same for the same test; some lack what they are protected by."""
    known, features, generator = test.known, test.encoding.features, torch.Generator().manual_seed(0)
    x = torch.zeros(_PEOPLE, test.encoding.width, dtype=torch.float64)
    for f in features:
        if f.kind == "categorical":
            x[torch.arange(_PEOPLE), f.start + _drawn(len(f.levels), generator)] = 1.0
        else:
            x[:, f.start] = torch.randn(_PEOPLE, generator=generator, dtype=torch.float64)
            x[:, f.start] *= torch.tensor([1.0, 1.0, _FAR], dtype=torch.float64)[_drawn(3, generator)]
    c = torch.stack([_values(known, v, generator) for v in range(len(known.protected))], dim=1)
    c[-_UNKNOWN:] = torch.nan
    return Dataset(
        x=x,
        c=c,
        protected=known.protected,
        features=features,
        y=_drawn(2, generator).double(),
        withheld=test.encoding.withheld,
        weights=None if known.weights is None else torch.ones(_PEOPLE, dtype=torch.float64),
    )


def _values(known: Dataset, variable: int, generator: torch.Generator) -> Tensor:
    """Return a protected value for everyone (N,): classes, each as often, or numbers of the fitting rows."""
    p, values = known.protected[variable], known.c[:, variable].double().nan_to_num()
    if not p.is_continuous:
        return _drawn(len(p.levels), generator).double()
    return values[_drawn(_PEOPLE, generator) * len(values) // _PEOPLE]  # they are in order: low and high ones


def _drawn(kinds: int, generator: torch.Generator) -> Tensor:
    """Return one of some kinds for everyone (N,), each as often, in a random order."""
    return torch.arange(_PEOPLE)[torch.randperm(_PEOPLE, generator=generator)] % kinds

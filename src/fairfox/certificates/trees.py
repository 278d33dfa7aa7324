"""Tree ensembles along a straight way: piecewise constant in t, with every step known to the last bit of t.

A column's number, as the computer rounds it, never turns back on the way, so that each split is passed at one exact
float64: the first t on its other side. Between these the leaves stay. Numbers t are held as the integers that share
their bits: for t >= 0 both have the same order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fairfox.certificates.forest import LEAF, Ensemble
from fairfox.certificates.inputs import Numbers, numbers_of
from fairfox.certificates.protocol import OnTheWay, point_at, settle
from fairfox.errors import ModelError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.protocol import predict

_ONE = int(np.float64(1.0).view(np.int64))
_PAST = _ONE + 1  # the integer behind t = 1
_EPS = float(np.finfo(np.float64).eps)
_AGREE = 1e-6  # a library that sums in float32 is within it of the true sum


class Pieces(NamedTuple):
    """Stretches of ways: from t `first` up to, but not at, `past`, both as integers; in which node each lies."""

    person: np.ndarray  # (P,)
    node: np.ndarray  # (P,)
    first: np.ndarray  # (P,)
    past: np.ndarray  # (P,)


def on_the_way(ensemble: Ensemble, model: BlackBoxModel, here: Tensor, there: Tensor) -> OnTheWay:
    """Return the largest change of an ensemble's output on each way between rows (N, D) without `reasons_against`."""
    people = len(here)
    if not people:
        return settle(here[:, 0], here[:, 0], here[:, 0], torch.zeros(0, dtype=torch.long), here[:, 0])
    pieces = walk(ensemble, numbers_of(model, here, there))
    owner, t = (torch.as_tensor(part).to(here.device) for part in _candidates(ensemble, pieces, people))
    ends = here, there, point_at(here, there, torch.ones_like(here[:, 0]))
    # all in one call: a tree ensemble takes as long for few rows as for many
    rows = torch.cat([*ends, point_at(here[owner], there[owner], t)])
    f_here, f_there, f_last, found = predict(model, rows).split([people, people, people, len(owner)])
    if np.isfinite(ensemble.slack):
        _check_reading(torch.stack([f_here, f_last]), found, owner)
    return settle(f_here, f_there, found, owner, t)


def walk(ensemble: Ensemble, numbers: Numbers) -> Pieces:
    """Return the stretches of everyone's way in the leaves of every tree."""
    people, nodes = len(numbers.start), ensemble.nodes
    ends = numbers.all_at(0.0), numbers.all_at(1.0)
    now = Pieces(
        np.repeat(np.arange(people), len(ensemble.roots)),
        np.tile(ensemble.roots, people),
        np.zeros(people * len(ensemble.roots), dtype=np.int64),
        np.full(people * len(ensemble.roots), _PAST, dtype=np.int64),
    )
    done = []
    while len(now.node):
        leaf = nodes.feature[now.node] == LEAF
        done.append(_taken(now, leaf))
        now = _through_splits(ensemble, numbers, ends, _taken(now, ~leaf))
    return Pieces(*(np.concatenate(part) for part in zip(*done, strict=True)))


def _through_splits(ensemble: Ensemble, numbers: Numbers, ends: tuple[np.ndarray, np.ndarray], now: Pieces) -> Pieces:
    """Return the stretches one node further down; one that passes the split becomes two."""
    nodes = ensemble.nodes
    column, limit, default = nodes.feature[now.node], nodes.threshold[now.node], nodes.missing_left[now.node]
    before, after = (_goes_left(end[now.person, column], limit, default) for end in ends)
    passed = np.where(before == after, _PAST, 0)
    turn = (before != after).nonzero()[0]
    passed[turn] = _passing(numbers, ends, _taken(now, turn), column[turn], limit[turn])
    left, right = nodes.left[now.node], nodes.right[now.node]
    first, second = passed > now.first, passed < now.past
    head = now._replace(node=np.where(before, left, right), past=np.minimum(now.past, passed))
    tail = now._replace(node=np.where(after, left, right), first=np.maximum(now.first, passed))
    return Pieces(*(np.concatenate(pair) for pair in zip(_taken(head, first), _taken(tail, second), strict=True)))


def _taken(pieces: Pieces, places: np.ndarray) -> Pieces:
    return Pieces(*(part[places] for part in pieces))


def _goes_left(value: np.ndarray, limit: np.ndarray, default: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(value), default, value <= limit)


def _passing(
    numbers: Numbers, ends: tuple[np.ndarray, np.ndarray], now: Pieces, column: np.ndarray, limit: np.ndarray
) -> np.ndarray:
    """Return the first t (as integers) at which a number is on the other side of the limit than at t = 0.

    Of limits that are passed far from the stretch only the side of it is right.
    """
    v0, v1 = (end[now.person, column] for end in ends)
    guess = (limit - v0) / (v1 - v0)
    size = np.abs(v0) + np.abs(v1) + np.abs(numbers.mean[column])
    doubt = 64 * _EPS * (1 + size / np.abs(v1 - v0))  # rounding moves a passing no further
    # abs: -0.0 has other bits than 0.0
    low, high = (np.abs(np.clip(guess + sign * doubt, 0.0, 1.0)).view(np.int64) for sign in (-1, 1))
    far = (high < now.first) | (low >= now.past)
    out = np.where(high < now.first, 0, _PAST)
    near = (~far).nonzero()[0]
    person, column, limit, up = now.person[near], column[near], limit[near], (v1 > v0)[near]

    def beyond(t: np.ndarray) -> np.ndarray:
        return np.asarray((numbers.at(person, column, t.view(np.float64)) > limit) == up)

    out[near] = _bisect(beyond, low[near], high[near])
    return out


def _bisect(beyond: Callable[[np.ndarray], np.ndarray], low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the first integers that are beyond; all are between those of 0, which is not, and of 1, which is."""
    low = np.where(beyond(low), 0, low)
    high = np.where(beyond(high), high, _ONE)
    while bool((high - low > 1).any()):
        middle = low + (high - low) // 2
        over = beyond(middle)
        low, high = np.where(over, low, middle), np.where(over, middle, high)
    return high


def _candidates(ensemble: Ensemble, pieces: Pieces, people: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whose each stretch is and its first t, of those whose sum of leaves is among the largest or smallest."""
    person, t, total = _sums(pieces, ensemble.nodes.value[pieces.node])
    begin = np.searchsorted(person, np.arange(people))
    highest, lowest = (part.reduceat(total, begin)[person] for part in (np.maximum, np.minimum))
    extreme = (total >= highest - ensemble.slack) | (total <= lowest + ensemble.slack)
    return person[extreme], t[extreme].view(np.float64)


def _sums(pieces: Pieces, value: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return where sums over all trees change, by person and t: whose each is (E,), its t, the sum from there on."""
    person = np.concatenate([pieces.person, pieces.person])
    t = np.concatenate([pieces.first, pieces.past])
    change = np.concatenate([value, -value])
    order = np.lexsort((t, person))
    person, t, total = person[order], t[order], np.cumsum(change[order])  # back to 0 at everyone's end
    last = np.append((np.diff(person) != 0) | (np.diff(t) != 0), True) & (t < _PAST)
    return person[last], t[last], total[last]


def _check_reading(ends: Tensor, found: Tensor, owner: Tensor) -> None:
    """Raise unless the model's answers at t = 0 and 1 (2, N) lie within those at the points found to be extreme."""
    edge = torch.full_like(ends[0], torch.inf)
    highest, lowest = (-edge).scatter_reduce(0, owner, found, "amax"), edge.scatter_reduce(0, owner, found, "amin")
    if bool(((ends > highest + _AGREE) | (ends < lowest - _AGREE)).any()):
        raise ModelError(
            "The trees that were read do not order people as the model's own predictions do, so that nothing can be "
            "certified; give the fitted model that makes these predictions, unchanged"
        )

"""Legitimate columns: they stay as they are, and with them all that they explain of other columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from fairfox.data.dataset import Dataset, Feature
from fairfox.errors import ColumnError, OptionError, did_you_mean
from fairfox.maps.along import Scale
from fairfox.maps.protocol import number_reached
from fairfox.maps.ranks import as_shares, categories_among, couple_rows, numbers_among, without_gaps
from fairfox.maps.stairs import Stairs, is_stepped
from fairfox.maps.surfaces import Own, Surfaces, Terms, bending_terms, fewest_people


class SameRanks(Protocol):
    """Rows at the same ranks elsewhere."""

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows where `to` (N,) says, and who could be mapped (N,)."""
        ...


RankRows = Callable[[Tensor, Tensor, list[Feature]], SameRanks]  # rows (n, D), c (n,), what to rank -> how


def legitimate_features(data: Dataset, names: Sequence[str]) -> list[Feature]:
    """Return the features of these names, after a look at whether they can be legitimate."""
    shown = {f.name: f for f in data.features if not bool(data.withheld[f.start])}
    read = {text: p.name for p in data.protected for text in (p.name, p.source) if text is not None}
    for name in names:
        if name in read:
            raise OptionError(
                f"'{name}' cannot be legitimate: the protected variable '{read[name]}' is read from it; name other "
                "columns"
            )
        if name not in shown:
            raise ColumnError(
                f"The legitimate column '{name}' is none that the model takes.{did_you_mean(name, list(shown))}"
            )
    if names and set(shown) == set(names) and not bool(data.withheld.any()):
        raise OptionError("All columns of the model are legitimate, and nothing is left to be compared; name fewer")
    return [shown[name] for name in dict.fromkeys(names)]


def remaining_metric(covariance: Tensor, given: Tensor) -> Tensor:
    """Return the covariance (D, D) of what some columns (D,) bool leave unexplained (Schur complement), 0 for them."""
    across = covariance[:, given]  # (D, G)
    left: Tensor = covariance - across @ torch.linalg.pinv(covariance[given][:, given], hermitian=True) @ across.T
    left[given] = 0.0
    left[:, given] = 0.0
    return left


@dataclass(frozen=True)
class GivenRanks:
    """The same ranks elsewhere, among people with the same legitimate values.

    A number is x = mean + spread z, both those of the own group at the person's legitimate values: z keeps its rank in
    the group. Numbers whose values many people share, and categories, have shares in place of a mean.
    """

    parts: list[Part]  # all features that nobody lacks, then each of the others
    ranks: SameRanks  # of z, and of what nothing explains: the columns of the protected variable itself
    scale: Scale | None  # of a protected number
    values: Tensor  # of it, in order
    marks: Tensor  # (D,) bool: legitimate categories, and marks of missing legitimate numbers
    seen: Tensor  # (groups, D) bool: those that anybody has

    @classmethod
    def of(
        cls,
        x: Tensor,
        c: Tensor,
        classes: int,
        scale: Scale | None,
        legitimate: list[Feature],
        features: list[Feature],
        rank: RankRows,
    ) -> GivenRanks | None:
        """Return what the rows x (n, D) of people with protected values c (n,) show; None where they are too few.

        `features` are those to map, without the legitimate ones.
        """
        known = ~c.isnan()
        rows, own = x[known].double(), c[known]
        at = own.double() if scale is None else scale(own)
        terms = bending_terms(Own.of(at, classes), legitimate, rows)
        if len(rows) < fewest_people(terms[0]):
            return None
        sets = [[f for f in features if not f.has_missing], *([f] for f in features if f.has_missing)]
        shown = [(part, without_gaps(rows, part)) for part in sets if part]
        parts = [Part.of(rows[who], at[who], terms, part) for part, who in shown if int(who.sum()) > 1]
        ranked = rank(_taken_off(parts, rows, at), own, [f for part in parts for f in part.numbers])
        groups = at.long() if classes else torch.zeros_like(at, dtype=torch.long)
        seen = rows.new_zeros(max(classes, 1), x.shape[1]).index_add_(0, groups, (rows > 0.5).double()) > 0
        return cls(parts, ranked, scale, at.unique(), _marks(x, legitimate), seen)

    def map(self, x: Tensor, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return the rows where `to` (N,) says, and who could be mapped (N,)."""
        here, there = self._ways(c, to)
        going = (~(here.isnan() | there.isnan() | self.unshared(x, c, to))).nonzero()[:, 0]
        out, moved = x.clone(), torch.zeros_like(c, dtype=torch.bool)
        before, here, there = x[going].double(), here[going], there[going]
        ranked, found = self.ranks.map(_taken_off(self.parts, before, here), c[going], to[going])
        for part in self.parts:
            part.put_back(ranked, before, here, there)
        out[going[found]] = ranked[found].to(x)
        moved[going] = found
        return out, moved

    def unshared(self, x: Tensor, c: Tensor, to: Tensor) -> Tensor:
        """Return who (N,) has a legitimate category, or lacks a value, as nobody of the own or the other group does."""
        here, there = (
            part.nan_to_num().long() if self.scale is None else torch.zeros_like(c).long() for part in (c, to)
        )
        has = (x > 0.5) & self.marks
        return (has & ~(self.seen[here] & self.seen[there])).any(1)

    def _ways(self, c: Tensor, to: Tensor) -> tuple[Tensor, Tensor]:
        """Return where everyone is and goes (N,): classes, or numbers in standard deviations; NaN for nowhere."""
        if self.scale is None:
            return c.double(), torch.where(to == c, torch.nan, to.double())
        own = self.scale(c)
        return own, number_reached(own, to.to(own), self.values)


@dataclass(frozen=True)
class Part:
    """How some features that go together depend on the legitimate columns, the own group the same."""

    numbers: list[Feature]
    stairs: list[tuple[Feature, Stairs]]
    categories: list[Feature]
    means: Surfaces  # of the numbers, then of the shares of stairs and categories
    spreads: Surfaces | None  # of the numbers
    floor: Tensor  # (numbers,) the least spread
    blocks: list[int]  # how many columns of the means each feature has
    groups: Tensor | None  # the classes that show the features; None for a protected number

    @classmethod
    def of(cls, x: Tensor, c: Tensor, terms: Sequence[Terms], features: list[Feature]) -> Part:
        """Return what rows x (n, D), float64, with protected values c (n,) show; nobody may lack a feature."""
        stepped = [f for f in numbers_among(features) if is_stepped(x[:, f.start])]
        numbers = [f for f in numbers_among(features) if f not in stepped]
        stairs, categories = [(f, Stairs.of(x[:, f.start])) for f in stepped], categories_among(features)
        steps = [stair.one_hot(x[:, f.start].contiguous()) for f, stair in stairs]
        shares = [*steps, *(x[:, f.columns] for f in categories)]
        values = torch.cat([x[:, [f.start for f in numbers]], *shares], dim=1)
        blocks = [1] * len(numbers) + [part.shape[1] for part in shares]
        means = Surfaces.of(values, x, c, terms, blocks)
        size = (values - means(x, c))[:, : len(numbers)].abs()
        spreads = Surfaces.of(size, x, c, [terms[0].flattened(), *terms], [1] * len(numbers)) if numbers else None
        floor = (size.mean(0) / 10).clamp(min=1e-30)
        groups = c.unique() if terms[0].own.classes else None
        return cls(numbers, stairs, categories, means, spreads, floor, blocks, groups)

    def take_off(self, rows: Tensor, x: Tensor, c: Tensor) -> None:
        """Set the numbers in rows (n, D) to z, those of x in spreads from their mean."""
        if self.spreads is not None:
            places = [f.start for f in self.numbers]
            mean = self.means(x, c)[:, : len(places)]
            rows[:, places] = (x[:, places] - mean) / self.spreads(x, c).maximum(self.floor)

    def put_back(self, rows: Tensor, x: Tensor, here: Tensor, there: Tensor) -> None:
        """Set the features in rows (n, D), where numbers are z, to what they are `there` for people with rows x."""
        own, new = (self.means(x, at) for at in (here, there))
        places = [f.start for f in self.numbers]
        if self.spreads is not None:
            rows[:, places] = new[:, : len(places)] + self.spreads(x, there).maximum(self.floor) * rows[:, places]
        shares = [part.split(self.blocks, dim=1)[len(places) :] for part in (own, new)]
        pairs = list(zip(*shares, strict=True))
        for (f, stair), (p, q) in zip(self.stairs, pairs[: len(self.stairs)], strict=True):
            rows[:, f.start] = stair.same_rank(x[:, f.start].contiguous(), as_shares(p), as_shares(q))
        for f, (p, q) in zip(self.categories, pairs[len(self.stairs) :], strict=True):
            rows[:, f.columns] = couple_rows(x[:, f.columns], p, q)
        self._leave_gaps(rows, x, here, there)

    def _leave_gaps(self, rows: Tensor, x: Tensor, here: Tensor, there: Tensor) -> None:
        """Set the numbers of people who lack them, or whose group here or there shows none, back to those of x."""
        for f in [*self.numbers, *(f for f, _ in self.stairs)]:
            if f.has_missing:
                stay = x[:, f.start + 1] > 0.5
                if self.groups is not None:
                    stay |= ~(torch.isin(here, self.groups) & torch.isin(there, self.groups))
                rows[:, f.start] = torch.where(stay, x[:, f.start], rows[:, f.start])


def _taken_off(parts: Sequence[Part], x: Tensor, c: Tensor) -> Tensor:
    """Return rows x (n, D) with what the legitimate columns explain taken off the numbers."""
    rows = x.clone()
    for part in parts:
        part.take_off(rows, x, c)
    return rows


def _marks(x: Tensor, legitimate: Sequence[Feature]) -> Tensor:
    """Return which columns (D,) say that a legitimate category is had, or that a legitimate number is missing."""
    out = torch.zeros(x.shape[1], dtype=torch.bool, device=x.device)
    for f in legitimate:
        out[f.start + (f.kind == "continuous") : f.stop] = True
    return out

"""The map of FlipTest (Black et al. 2020): a generator takes the people of one group to where another one's are."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from fairfox.data.dataset import Dataset, project_blocks, resample
from fairfox.errors import FileError, NotFittedError, OptionError
from fairfox.flips import mean_distance, mean_regression_error
from fairfox.maps.columns import outside
from fairfox.maps.generators import Fitted, doubts_about, in_units, only_withheld, read_map, seen_columns, write_map
from fairfox.maps.protocol import (
    UNKNOWN,
    CounterfactualMap,
    Mapped,
    Pair,
    check_groups_present,
    check_is_grouped,
    compared_pairs,
    where_to,
)
from fairfox.maps.ranks import kept_missing
from fairfox.models.protocol import row_blocks
from fairfox.nets.wgan import GanSettings, Passage, Steps, train_generators

_LOG = logging.getLogger("fairfox")
_TOGETHER = {"cpu": 8, "cuda": 512}  # GANs in one network; more outgrow the cache of a CPU
_BLOCK = 4096  # people who are mapped at once
_MOST_CHECKED = 5000  # people of a group
NOT_FINITE = "the generator makes no finite row of them"
_CHANCE = 0.8687  # mean of the Kolmogorov distribution: what KS is by chance, times sqrt(1/n + 1/m)

Place = tuple[int, int, Pair]  # which variable, which re-fit, and from where to where


@dataclass(kw_only=True)
class GanMap:
    """Everyone as a member of another group, as a generator trained against a critic has it.

    One generator for each ordered pair of classes; all of them, and those of all re-fits, train in batched networks on
    standardised columns. Withheld columns are set to the other group's value by their ranks, as in the other maps.
    What is missing stays missing. The settings are those of Black et al. 2020.

    Example:
        >>> x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float())
        >>> GanMap(steps=20).fit(data).map(data).rows.shape
        torch.Size([200, 2])
    """

    variable: int = 0
    steps: int = 20_000  # of the generator
    width: int = 128
    depth: int = 2
    n_critic: int = 5  # steps of the critic for one of the generator
    batch: int = 64
    weight: float = 1e-4  # lambda: of the squared L1 distance to the own row
    rate: float = 5e-5
    clip: float = 0.01  # of the critic's weights
    standardise: bool = True  # numbers, by their spread in the fitting rows
    seed: int = 0
    progress: Steps | None = field(default=None, repr=False, compare=False)
    fitted: Fitted | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("steps", "width", "depth", "n_critic", "batch"):
            found = getattr(self, name)
            if not isinstance(found, int) or found < 1:
                raise OptionError(f"{name} of FlipTest is {found!r}; give a whole number, 1 or more")
        if not (0 < self.rate < math.inf and 0 < self.clip < math.inf and 0 <= self.weight < math.inf):
            found = f"rate {self.rate}, clip {self.clip} and weight {self.weight}"
            raise OptionError(
                f"FlipTest has {found}; give finite numbers: a rate and a clip above 0, and a weight of 0 or more"
            )

    def fit(self, data: Dataset) -> Self:
        """Train the generators between the classes of one variable on x and c, never y."""
        self.fitted = self._train(data, [self.variable], 1, 0)[0][0].fitted
        return self

    def fit_many(self, data: Dataset, refits: int, *, seed: int) -> list[list[CounterfactualMap]]:
        """Return `refits` maps for each protected variable, trained together; several on resampled rows each."""
        return [[*maps] for maps in self._train(data, range(len(data.protected)), refits, seed)]

    def map(self, data: Dataset, to: Tensor | None = None) -> Mapped:
        """Return everyone in the class that `to` (N,) says (None: the other of two).

        Who goes nowhere is abstained, and so is of whom a generator that diverged makes no finite row.
        """
        fitted = self._known()
        c, to = data.c[:, self.variable], where_to(data, self.variable, to)
        going = ~(c.isnan() | to.isnan() | (to == c))
        x, overshoot, lost = data.x.clone(), data.x.new_zeros(len(data)), torch.zeros_like(going)
        for own, other in torch.stack([c, to], dim=1)[going].unique(dim=0).long().tolist():
            people = (going & (c == own) & (to == other)).nonzero()[:, 0]
            for block in row_blocks(len(people), _BLOCK):
                rows = people[block]
                there = fitted.generate(data.x[rows], (own, other))
                lost[rows] = ~there.isfinite().all(1)
                there = torch.where(lost[rows, None], data.x[rows], there)
                overshoot[rows] = outside(there, data.features)
                x[rows] = kept_missing(project_blocks(there, data.features), data.x[rows], data.features)
        stay = ~going | lost
        x[lost] = data.x[lost]
        if fitted.ranks is not None:
            swapped = fitted.ranks.map(only_withheld(data, self.variable), torch.where(stay, torch.nan, to))
            x[:, data.withheld.to(x.device)] = swapped.rows
        reasons = [reason for reason, people in ((UNKNOWN, ~going), (NOT_FINITE, lost)) if bool(people.any())]
        return Mapped(x, stay, " or ".join(reasons), overshoot)

    def checks(self) -> dict[str, float]:
        """Return how real the mapped people look, on their fitting rows (at most 5000 a group), mean over directions.

        `ks`: mean distance between a feature's distribution among the mapped and among the real people of the group
        they go to; a category's is the largest gap between the shares of a level. `ks_worst`: the same in the direction
        where it is largest. `ks_unmapped`: before mapping. `ks_chance`: what people of one group, so many, show by
        chance. `mse`: mean squared error on mapped people of the linear regressions of each column on the other
        features, which were fitted on the real people of that group. `mse_real`: the same on those. What is said of
        mapped people is NaN where a generator diverged.
        """
        return dict(self._known().checks)

    def doubts(self, checks: Mapping[str, float]) -> list[str]:
        """Return a sentence for each check that is poor."""
        return doubts_about(checks)

    def save(self, folder: str | Path) -> None:
        """Write the fitted map: tensors as safetensors, everything else as JSON.

        With withheld columns this includes their values in the fitting rows, which say what ranks people have.
        """
        write_map(Path(folder), self._settings(), self._known())

    @classmethod
    def load(cls, folder: str | Path, *, device: str = "cpu") -> Self:
        """Return the map that was saved in a folder, for people on a device."""
        about, tensors = read_map(Path(folder), device)
        try:
            one = cls(**about["settings"])
            one.fitted = Fitted.restored(about, tensors)
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError, IndexError) as error:
            raise FileError(f"The files in {folder} do not describe one map; save it again") from error
        return one

    def _settings(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self) if f.init and f.name != "progress"}

    def _known(self) -> Fitted:
        if self.fitted is None:
            raise NotFittedError("This GanMap is not fitted; call fit first")
        return self.fitted

    def _train(self, data: Dataset, variables: Sequence[int], refits: int, seed: int) -> list[list[Self]]:
        data = _counted(data, variables)
        generator = torch.Generator().manual_seed(self.seed + seed)
        columns, centre, scale = seen_columns(data, standardise=self.standardise)
        samples = [_sampled_rows(data, generator, as_they_are=refits == 1) for _ in range(refits)]
        places = [(v, m, pair) for v in variables for m in range(refits) for pair in compared_pairs(data.protected[v])]
        passages = [_passage(data.c[:, v], samples[m], pair, generator) for v, m, pair in places]
        _LOG.info("training %d generators on %d columns, %d steps each", len(places), len(columns), self.steps)
        trained = self._generators((data.x[:, columns] - centre) / scale, passages)
        nets = {place: in_units(net, centre, scale) for place, net in zip(places, trained, strict=True)}
        return [[self._with(data[samples[m]], v, columns, nets, m) for m in range(refits)] for v in variables]

    def _with(
        self, sample: Dataset, variable: int, columns: Tensor, nets: Mapping[Place, nn.Sequential], m: int
    ) -> Self:
        """Return the map of one re-fit of one variable, that has these generators, and check it on its people."""
        one = copy.copy(self)
        generators = {pair: nets[variable, m, pair] for pair in compared_pairs(sample.protected[variable])}
        withheld = only_withheld(sample, variable) if bool(sample.withheld.any()) else None
        one.variable, one.fitted = variable, Fitted(columns, generators, withheld)
        one.fitted.checks.update(_checks(one, sample))
        return one

    def _generators(self, x: Tensor, passages: Sequence[Passage]) -> Iterator[nn.Sequential]:
        names = {f.name for f in fields(GanSettings)}
        settings = GanSettings(**{name: getattr(self, name) for name in names})
        size = _TOGETHER.get(x.device.type, 1)
        parts = [passages[start : start + size] for start in range(0, len(passages), size)]
        for number, part in enumerate(parts):
            net = train_generators(x.float(), part, settings, progress=_part_of(self.progress, number, len(parts)))
            yield from (net.member(m) for m in range(len(part)))


def _counted(data: Dataset, variables: Sequence[int]) -> Dataset:
    """Return the people who count, after a look at whether FlipTest can learn from them."""
    counted = data if data.weights is None else data[data.weights > 0]
    for v in variables:
        check_is_grouped(data.protected[v], "FlipTest")
        check_groups_present(counted, v)
    return counted


def _sampled_rows(data: Dataset, generator: torch.Generator, *, as_they_are: bool) -> Tensor:
    """Return row numbers: each once, or resampled as other maps are; weighted rows always are."""
    number = torch.arange(len(data))
    if as_they_are and data.weights is None:
        return number
    numbered = Dataset(number.double()[:, None], data.c.cpu(), data.protected, (), weights=data.weights)
    return resample(numbered, generator=generator).x[:, 0].long()


def _passage(c: Tensor, rows: Tensor, pair: Pair, generator: torch.Generator) -> Passage:
    own = c.cpu()[rows]
    seed = int(torch.randint(2**62, (1,), generator=generator))
    return Passage(rows[own == pair[0]], rows[own == pair[1]], seed)


def _part_of(progress: Steps | None, number: int, parts: int) -> Steps | None:
    """Return the progress of one of several parts that are trained one after the other."""
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)


def _checks(one: GanMap, data: Dataset) -> dict[str, float]:
    """Return how real mapped people look; see `GanMap.checks`."""
    c, withheld, generator = data.c[:, one.variable], data.withheld.tolist(), torch.Generator().manual_seed(one.seed)
    features = [f for f in data.features if not withheld[f.start]]
    groups = {int(k): data[_some(c == k, generator)] for k in c[~c.isnan()].unique()}
    found = []
    for own, other in one._known().generators:
        people, real = groups[own], groups[other].x
        mapped = one.map(people, torch.full_like(people.c[:, one.variable], other))
        rows = torch.where(mapped.abstained[:, None], torch.nan, mapped.rows)
        distance = math.nan if bool(mapped.abstained.any()) else mean_distance(rows, real, features)
        errors = [mean_regression_error(real, each, features) for each in (rows, real)]
        chance = _CHANCE * (1 / len(people) + 1 / len(real)) ** 0.5
        found.append([distance, mean_distance(people.x, real, features), chance, *errors])
    each = torch.tensor(found, dtype=torch.float64)  # (directions, 5)
    ks, *others = each.mean(0).tolist()
    names = ("ks", "ks_worst", "ks_unmapped", "ks_chance", "mse", "mse_real")
    return dict(zip(names, (ks, float(each[:, 0].amax()), *others), strict=True))


def _some(group: Tensor, generator: torch.Generator) -> Tensor:
    """Return row numbers of a group (N,) bool: all, or so many drawn at random."""
    rows = group.nonzero()[:, 0]
    drawn = torch.randperm(len(rows), generator=generator)[:_MOST_CHECKED].to(rows.device)
    return rows if len(drawn) == len(rows) else rows[drawn]

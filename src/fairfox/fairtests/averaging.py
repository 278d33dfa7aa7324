"""Predictions averaged over a person and their counterfactual rows, and over the counterfactual rows of these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from fairfox.auxiliary.model import FixedAuxiliary, group_chances, infer_groups
from fairfox.data.contrasts import destinations
from fairfox.data.dataset import Dataset
from fairfox.errors import OptionError
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.fitted import FittedTest, measured_name
from fairfox.maps.ranks import Draws
from fairfox.models.protocol import Model, predict, predict_once

_TAKEN = 0.8  # share of the mean |effect| that is taken away at full strength, by the repair's own map
_MOST_ROUNDS = 16
_TRIED, _DRAWS = 300, 8  # people who show how many rounds that takes, and their counterfactual rows
_NONE = 1e-9  # a smaller mean |effect| is none
_PATHS = 32  # of each person
_MEMBERS = 2  # auxiliary networks
_AT_ONCE = 80_000  # people, times their paths


@dataclass(frozen=True, kw_only=True)
class Averaging:
    """How a model is repaired: by random paths from each person from group to group.

    In each round every path draws a group, in proportion to the groups' sizes, and goes to the row of the same ranks in
    it. Where it starts from is the person's own group, or, without the protected column, a group drawn with the
    auxiliary's probabilities for the row. The prediction is averaged over the paths. What depends on the group alone
    is lost, a little more with each round. A model that treats all groups alike stays as it is.
    """

    test: FittedTest  # has the rank maps and the auxiliary
    rounds: float = 1.0  # at full strength; of a fraction, that share of the paths makes one more
    strength: float = 1.0  # the share of the rounds that are made
    use_protected: bool = False
    only: str | None = None  # one feature that paths change, by name; None: all
    threshold: float | None = None  # the prediction from which on the answer is yes; None: one half of a probability
    model_sha256: str | None = None  # of the model's file

    def __post_init__(self) -> None:
        if not 0 <= self.rounds <= _MOST_ROUNDS:
            raise OptionError(f"rounds is {self.rounds!r}; expected a number from 0 to {_MOST_ROUNDS}")
        if not 0 <= self.strength <= 1:
            raise OptionError(f"strength is {self.strength!r}; expected a number from 0 to 1")
        for p in self.test.known.protected:
            if p.is_continuous:
                raise OptionError(
                    f"'{p.name}' is a number, but a repair averages over groups; make groups with a cut such as "
                    f"'{p.name}<25'"
                )
        if not isinstance(self.effect, Effect) or not self.effect.persists:
            raise OptionError(f"A repair needs the test rank; '{self.test.options.main}' has no ranks")

    @property
    def effect(self) -> Effect:
        """The test, whose maps are used."""
        return self.test.tests[measured_name(self.test.options)]  # type: ignore[return-value]

    def with_rounds(self, model: Model, data: Dataset) -> Averaging:
        """Return the same with as many rounds as take away most of a model's mean |effect|, on some people."""
        rows = torch.randperm(len(data), generator=torch.Generator().manual_seed(self.test.options.seed))[:_TRIED]
        people, _ = infer_groups(data[rows.sort().values.to(data.x.device)], self.test.auxiliary, self.test.known)
        measured = self.effect.measure(model, people, rows=False)
        judged = (~measured.abstained).nonzero()[:, 0]
        people, worst = people[judged.to(people.x.device)], measured.worst[judged]
        if len(people) == 0:
            return self
        there = self.effect.rows_of_draws(people, worst)[:_DRAWS]
        group = people.c.clone()
        for q, contrast in enumerate(measured.contrasts):
            v = contrast.variable
            group[:, v] = torch.where((worst == q).to(group.device), destinations(people, contrast), group[:, v])
        everyone = people[torch.arange(len(people)).repeat(1 + len(there))]
        x, c = torch.cat([people.x, there.flatten(0, 1)]), torch.cat([people.c, group.repeat(len(there), 1)])
        everyone = replace(everyone, x=x, c=c if self.use_protected else torch.full_like(c, torch.nan))

        def size(rows: Tensor) -> float:
            """Return the mean |effect| of predictions that are averaged over these rows."""
            own, *others = self._mean(model, rows, len(rows) // len(x)).view(1 + len(there), -1)
            return float((torch.stack(others).mean(0) - own).abs().mean())

        before, last, rounds = size(x), 0, 1.0
        goal = found = before
        goal *= 1 - _TAKEN
        for number, rows in enumerate(self._paths(everyone, _MOST_ROUNDS), start=1):
            if before <= _NONE or number & (number - 1):  # rounds 1, 2, 4, 8 and so on are looked at
                continue
            earlier, found = found, size(rows)
            share = min(1.0, max(0.0, (earlier - goal) / max(earlier - found, _NONE)))
            rounds, last = last + share * (number - last), number
            if found <= goal:
                break
        return replace(self, rounds=rounds)

    @cached_property
    def variables(self) -> list[int]:
        """The protected variables that paths go along: an intersection follows from its own."""
        return [v for v, p in enumerate(self.test.known.protected) if not p.parts]

    @cached_property
    def _changed(self) -> Tensor:
        """Which columns of x (D,) bool paths change."""
        out = torch.zeros(self.test.encoding.width, dtype=torch.bool)
        for f in self.test.encoding.features:
            out[f.columns] = f.name == self.only
        return out

    @cached_property
    def auxiliary(self) -> FixedAuxiliary:
        """The networks that say which group a row may come from: a few of the test's, since paths ask often."""
        return replace(self.test.auxiliary, members=self.test.auxiliary.members[:_MEMBERS])

    @cached_property
    def shares(self) -> list[Tensor]:
        """The share of each group up to and with it, for each protected variable."""
        known = self.test.known
        weights = torch.ones(len(known)) if known.weights is None else known.weights
        found = []
        for v, p in enumerate(known.protected):
            sizes = torch.stack([weights[known.c[:, v] == code].sum() for code in range(len(p.levels))]).double()
            found.append((sizes / sizes.sum()).cumsum(0))
        return found

    def predict(self, model: Model, data: Dataset, here: Tensor | None = None) -> Tensor:
        """Return the averaged predictions (N,) of people; `here` are the model's own, where they are known already.

        Nobody's depends on who else is in the table.
        """
        batch_size = self.test.options.batch_size
        here = predict(model, data.x, batch_size=batch_size) if here is None else here
        parts = torch.arange(len(data)).split(max(1, _AT_ONCE // _PATHS))
        return torch.cat([self._averaged(model, data[rows], here[rows]) for rows in parts]) if len(data) else here

    def _averaged(self, model: Model, people: Dataset, here: Tensor) -> Tensor:
        total = self.strength * self.rounds
        ends = (total + (torch.arange(_PATHS) + 0.5) / _PATHS).floor()  # rounds of each path: of a fraction some
        rows = people.x.repeat(_PATHS, 1)
        for number, at in enumerate(self._paths(people, int(ends.max())), start=1):
            going = (ends >= number).repeat_interleave(len(people)).to(rows.device)
            rows = torch.where(going[:, None], at, rows)
        return self._mean(model, rows, _PATHS) if total > 0 else here

    def _mean(self, model: Model, rows: Tensor, paths: int) -> Tensor:
        """Return the mean prediction (n,) over some paths of everyone."""
        batch_size = self.test.options.batch_size
        if model.differentiable:
            return predict(model, rows, batch_size=batch_size).view(paths, -1).mean(0)
        return predict_once(model, rows, batch_size).view(paths, -1).mean(0)

    def _paths(self, people: Dataset, rounds: int) -> Iterator[Tensor]:
        """Yield where everyone's paths are (paths x n, D) after each round, one path of everyone after the other."""
        generator = torch.Generator().manual_seed(self.test.options.seed)
        each = torch.arange(len(people), device=people.x.device).repeat(_PATHS)
        # only what maps look at: rows, groups and given columns
        at = replace(people, y=None, ids=None, weights=None, truth=None)[each]
        start = at.c if self.use_protected else torch.full_like(at.c, torch.nan)
        at = replace(at, c=start)
        for _ in range(rounds):
            for v in self.variables:
                own, there = (_spread(generator, 1)[:, 0].repeat_interleave(len(people)) for _ in range(2))
                c = self._group(at, v, own)
                to = torch.searchsorted(self.shares[v], there).clamp(max=len(self.shares[v]) - 1).to(c)
                at = self._moved(at, v, c, to, _spread(generator, at.x.shape[1] + _width(at.w)))
            yield at.x

    def _group(self, at: Dataset, v: int, uniform: Tensor) -> Tensor:
        """Return the group (n,) that each path starts from: known, or drawn with its probability."""
        known = at.c[:, v]
        unknown = known.isnan()
        if not bool(unknown.any()):
            return known
        ends = group_chances(at.x[unknown], self.auxiliary, at.protected)[v].double().cumsum(1)  # (n, K)
        drawn = (uniform[unknown.cpu()][:, None].to(ends) * ends[:, -1:] > ends).sum(1).clamp(max=ends.shape[1] - 1)
        return known.masked_scatter(unknown, drawn.to(known))

    def _moved(self, at: Dataset, v: int, c: Tensor, to: Tensor, uniform: Tensor) -> Dataset:
        """Return the paths after they went to their groups (n,), each refit's map taking its share of them."""
        x, people, maps = at.x.clone(), len(at) // _PATHS, self.effect.fitted[v]
        for m, fitted in enumerate(maps):
            paths = torch.arange(m, _PATHS, len(maps))
            own = (paths[:, None] * people + torch.arange(people)).flatten().to(x.device)
            going = own[(c != to)[own]]
            if len(going):
                draws = Draws(
                    torch.ones(_PATHS, dtype=torch.float64), torch.zeros_like(uniform), uniform, going.cpu() // people
                )
                some = replace(at[going], c=at.c[going].index_copy(1, torch.tensor([v]), c[going, None]))
                x[going] = fitted.map(some, to[going], draws=draws).rows.to(x)  # type: ignore[call-arg]
        if self.only is not None:
            x = torch.where(self._changed.to(x.device), x, at.x)
        state = at.c.index_copy(1, torch.tensor([v]), to[:, None]) if self.use_protected else at.c
        return replace(at, x=x, c=state)


def _spread(generator: torch.Generator, columns: int) -> Tensor:
    """Return numbers between 0 and 1 (paths, columns), spread evenly over the paths in each column."""
    order = torch.rand(_PATHS, columns, generator=generator).argsort(0)
    return (order + torch.rand(_PATHS, columns, generator=generator, dtype=torch.float64)) / _PATHS


def _width(w: Tensor | None) -> int:
    return 0 if w is None else w.shape[1]


@dataclass(frozen=True)
class AveragedModel:
    """A model on encoded rows with its repair, which does not take the protected column, as a Model."""

    model: Model
    averaging: Averaging
    differentiable = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for rows x (N, D)."""
        known = self.averaging.test.known
        c = torch.full((len(x), len(known.protected)), torch.nan, dtype=x.dtype, device=x.device)
        features, withheld = self.averaging.test.encoding.features, self.averaging.test.encoding.withheld
        people = Dataset(x=x, c=c, protected=known.protected, features=features, withheld=withheld)
        return self.averaging.predict(self.model, people)[:, None]

"""alternatives(model, table, ...): less unequal models, what they cost, and whether it is worth searching on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from inspect import signature
from io import BytesIO
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.csv
import torch
from torch import Tensor

from fairfox.assessment import labelled_yes
from fairfox.auxiliary.adversarial import train_networks
from fairfox.auxiliary.model import infer_groups
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset, row_marks
from fairfox.data.table import load_table
from fairfox.errors import DataError, FairfoxError, OptionError, did_you_mean
from fairfox.explain import explain
from fairfox.fairtests.correction import CorrectedModel
from fairfox.fairtests.fitted import FittedTest, Fold, Progress, fit_folds, measured_name, same_outcome_name
from fairfox.fairtests.inputs import Inputs
from fairfox.fairtests.readings import measure_folds
from fairfox.models.adapters import as_model, describe
from fairfox.models.protocol import Model, Output, TargetModel, predict
from fairfox.models.torch import TorchModel
from fairfox.options import NOT_OF_ALTERNATIVES, AuditOptions, refuse_outside
from fairfox.remedies.learning import fit_correction
from fairfox.report.charts import frontier_chart
from fairfox.report.files import write_files
from fairfox.report.text import amount, percent, strict_json
from fairfox.statistics.groups import delta_for, own_deltas, people_weights, score_unit, weighted_mean
from fairfox.statistics.performance import METRICS, Performance, performance

FILES = ("alternatives.json", "alternatives.csv", "alternatives.svg")
STRENGTHS = (0.25, 0.5, 0.75, 1.0)  # of repairs
FLOORS = (1.0, 3.0)  # of `train_fair`
_CLOSER = 3  # repairs at most, each nearer to the stated loss
_FEATURES = 2  # that are dropped and repaired: those with the largest contributions
_MOST_PEOPLE = 8_000  # drawn at random, half of them to learn from; with fewer, repairs cost more than they must
_MOST_LEARNT = 50_000  # of a reference
_FOLDS, _REFITS = 2, 2
_VALUES = 8  # of other people, that a dropped feature has
_MORE, _BETTER = 10, 0.1  # what a further search is asked for: so many candidates, so much less of an effect, in deltas
_POINTS = 0.005  # the same of a probability, whatever delta is
_MOST_SHARED = 0.1  # of the table's people, who may be in the reference
_NOT_RUN = "time was up (max_minutes)"


@dataclass(frozen=True)
class Alternative:
    """One candidate, measured on people it has not learnt from, by maps that no repair has learnt from."""

    name: str
    kind: str  # "model", "repair", "feature", "train_fair", "own" or "search"
    performance: tuple[Performance, ...]
    mean_effect: float  # mean |effect|
    error: float  # its standard error over people
    share_over: float  # share of people over delta
    same_outcome: float | None  # mean |effect| among people with the same label
    loss: float  # of performance against the model as it is: AUC points / 100, or a share of the log-loss or RMSE
    dominated: bool = False  # another one predicts as well or better, and has a smaller effect

    def is_beaten_by(self, other: Alternative) -> bool:
        """Return whether another one is as good in both ways, and better in one."""
        here, there = (self.loss, self.mean_effect), (other.loss, other.mean_effect)
        return there != here and there[0] <= here[0] and there[1] <= here[1]

    def as_dict(self) -> dict[str, Any]:
        """Return it in JSON's own types."""
        return {**asdict(replace(self, performance=())), "performance": [each.as_dict() for each in self.performance]}


@dataclass(frozen=True)
class Alternatives:
    """What was tried, the model as it is first; see `fairfox.alternatives`."""

    tried: tuple[Alternative, ...]
    not_run: dict[str, str]  # why, by name
    max_loss: float
    delta: float
    unit: str
    people: int
    more: float | None  # the probability that ten more candidates of the search improve on it; None: too few so far
    better: float  # by more than this
    settings: dict[str, Any]

    @property
    def best(self) -> Alternative:
        """The one with the smallest mean effect, within the stated loss of performance."""
        return min((each for each in self.tried if each.loss <= self.max_loss), key=lambda each: each.mean_effect)

    @property
    def table(self) -> pa.Table:
        """One row for each candidate."""
        rows = []
        for each in self.tried:
            row = {name: value for name, value in each.as_dict().items() if name != "performance"}
            for own in each.performance:
                row |= {own.metric: own.value, f"{own.metric}_lower": own.lower, f"{own.metric}_upper": own.upper}
            rows.append(row)
        return pa.Table.from_pylist(rows)

    @property
    def chart(self) -> Any:
        """Performance against the mean effect, as an Altair chart."""
        points = [
            {"name": each.name, "kind": each.kind, "performance": own.value, "lower": own.lower, "upper": own.upper,
             "mean_effect": each.mean_effect, "dominated": each.dominated}
            for each in self.tried for own in each.performance[:1]
        ]  # fmt: skip
        return frontier_chart(points, performance=METRICS[self.tried[0].performance[0].metric])

    def summary(self) -> str:
        """Return what was found as a few lines of plain text."""
        model, best = self.tried[0], self.best
        metric = METRICS[model.performance[0].metric]

        def words(one: Alternative) -> str:
            own = one.performance[0]
            return (
                f"{metric} {own.value:.3f} ({own.lower:.3f} to {own.upper:.3f}), mean effect "
                f"{amount(one.mean_effect, self.unit)}, {percent(one.share_over)} of people over delta"
            )

        rows = self.settings["reference_rows"]
        learnt = "each half learns once and judges once" if rows is None else f"they learnt from {rows:,} others"
        lines = [f"{len(self.tried) - 1} alternatives on {self.people:,} people; {learnt}."]
        lines.append(f"The model as it is: {words(model)}.")
        if len(self.tried) == 1:
            lines.append("No alternative was measured.")
        elif best is model:
            lines.append(f"None has a smaller mean effect within a loss of {self.max_loss:g}.")
        else:
            lines.append(f"The best within a loss of {self.max_loss:g} is {best.name}: {words(best)}.")
        if searched := sum(each.kind == "search" for each in self.tried):
            lines.append(stopping_sentence(self.more, searched, amount(self.better, self.unit)))
        lines += [f"Not run: {name} ({why})." for name, why in self.not_run.items()]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Return everything as JSON."""
        fields = {name: getattr(self, name) for name in ("not_run", "max_loss", "delta", "unit", "people", "settings")}
        tried = [each.as_dict() for each in self.tried]
        found = {"probability_of_improvement": self.more, "best": self.best.name}
        return strict_json({"kind": "alternatives", "tried": tried, **found, **fields})

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write alternatives.json, alternatives.csv and alternatives.svg to a folder, all or none."""
        import vl_convert  # large

        rows = BytesIO()
        pyarrow.csv.write_csv(self.table, rows)
        drawn = vl_convert.vegalite_to_svg(self.chart.to_json())
        return write_files(Path(folder), dict(zip(FILES, (self.to_json(), rows.getvalue(), drawn), strict=True)))


def probability_of_improvement(effects: Sequence[float], better: float = _POINTS) -> float | None:
    """Return how probably ten more candidates beat the best so far by more than that; None where there are too few.

    If candidates come in random order, the last ten beat those before them only where they hold everyone who is so
    near to the best. The more there are of these, the less probable that is. Further candidates improve on more, so
    they do so less often.

    Example:
        >>> probability_of_improvement([0.1] * 20) < 1e-5
        True
        >>> probability_of_improvement([0.1 * k for k in range(20)])
        0.5
    """
    n = len(effects)
    if n <= _MORE:
        return None
    near = int((np.asarray(effects) <= min(effects) + better).sum())
    return math.prod((_MORE - i) / (n - i) for i in range(near)) if near <= _MORE else 0.0


def stopping_sentence(more: float | None, searched: int, better: str) -> str:
    """Return whether it is worth searching on, for a mean effect that is better by that much."""
    if more is None:
        needed = f"that takes a search of {_MORE + 1} or more candidates, and this one had {searched}"
        needed = "no candidate of this one is within the stated loss" if searched > _MORE else needed
        return f"Whether a longer search would help is not known: {needed}."
    what = f"{_MORE} more candidates of the same search improve the mean effect by more than {better}"
    return f"The probability that {what} is at most {max(more, 0.001):.2g}."


def alternatives(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    label: str,
    candidates: Mapping[str, object] | None = None,
    estimator: Any = None,
    grid: Mapping[str, Sequence[Any]] | None = None,
    searched: int = 20,
    max_loss: float = 0.005,
    delta: float | None = None,
    given: str | Sequence[str] = (),
    columns: Sequence[str] | None = None,
    reference: object = None,
    seed: int = 0,
    options: object = None,
    progress: Progress | None = None,
    **unknown: object,
) -> Alternatives:
    """Return less unequal models with what they cost: repairs, features dropped or repaired, `train_fair`, your own.

    Everything that learns, learns from one half of the people and is measured on the other, by maps of that other half;
    and the other way round. With a reference it learns from that. A candidate that predicts better than the model as it
    is can spend what it gains: the one that predicts best is repaired, too.

    Args:
        model: the model as it is, as for `fairfox.audit`.
        table: the people, at best not those that the model was trained on; of more than 8,000 a random sample is taken.
        protected: as for `fairfox.audit`, but not numbers.
        label: the column of true outcomes, which performance is measured by.
        candidates: other models by name, which take columns of this model.
        estimator: a scikit-learn estimator to fit with each of `searched` settings drawn from `grid`.
        grid: lists of values by the names of the estimator's parameters.
        searched: how many settings are drawn.
        max_loss: how much performance the best alternative may lose: in AUC, or as a share of a log-loss or RMSE.
        delta: as for `fairfox.audit`.
        given: columns that may make a difference, as for `fairfox.audit`.
        columns: the columns that the model takes, in its order.
        reference: other people to learn from, with labels, such as those that the model was trained on: a candidate
            that learns from fewer people predicts worse.
        seed: same seed, same numbers.
        options: all other options by name, or in groups; there are two folds with two refits each. What would begin
            after `max_minutes` is not run, and named.
        progress: called with what is being done and the fraction done.
        unknown: refused, with what to write instead.
    """
    refuse_outside(unknown, *[*signature(alternatives).parameters][:-1])
    chosen = AuditOptions.of(
        options, protected=protected, label=label, delta=delta, given=given, columns=columns, seed=seed
    ).without(NOT_OF_ALTERNATIVES, "alternatives")
    Number(0, 1, high_open=True).required("max_loss", max_loss)
    if label is None:
        raise OptionError("Alternatives are compared by how well they predict; name the label (label=, --label)")
    search = _settings_of_search(estimator, grid, searched, seed)
    started, say = perf_counter(), progress or (lambda text, fraction: None)
    say("reading the table", 0.0)
    people = _some(table, _MOST_PEOPLE, seed)
    learnt = None if reference is None else _some(reference, _MOST_LEARNT, seed)
    inputs = Inputs.read(model, people, learnt, replace(chosen, folds=_FOLDS, refits=_REFITS))
    say("fitting maps", 0.02)
    measuring = Measuring.of(inputs, lambda text, done: say(text, 0.1 * done))
    others = [
        *measuring.own(candidates or {}),
        *measuring.of_features(),
        *measuring.fair_networks(),
        *measuring.searched(estimator, search),
    ]
    tried, not_run = measuring.measure_all(others, max_loss, until=started + 60 * chosen.max_minutes, say=say)
    say("done", 1.0)
    effects = [each.mean_effect if each.loss <= max_loss else math.inf for each in tried if each.kind == "search"]
    rows, recorded = None if inputs.fitting is None else len(inputs.fitting), inputs.options.recorded() | inputs.hashes
    return Alternatives(
        tried=tuple(replace(each, dominated=any(map(each.is_beaten_by, tried))) for each in tried),
        not_run=not_run,
        max_loss=max_loss,
        delta=measuring.delta,
        unit=score_unit(inputs.options, inputs.target.unit),
        people=len(inputs.data),
        more=probability_of_improvement(effects, measuring.better) if any(map(math.isfinite, effects)) else None,
        better=measuring.better,
        settings={**recorded, "reference_rows": rows, "seconds": round(perf_counter() - started, 1)},
    )


@dataclass(frozen=True, eq=False)
class Lesson:
    """What candidates learn from: people with labels, and the test whose maps repair."""

    test: FittedTest
    people: Dataset
    yes: Tensor  # (n,) whether each label is a yes, or the number that it is


Make = Callable[[Lesson], Model]


@dataclass(frozen=True)
class Measuring:
    """The people and maps that all candidates are measured with, and the candidates that fairfox makes itself."""

    inputs: Inputs
    data: Dataset
    folds: Sequence[Fold]
    lessons: Sequence[Lesson]  # for each fold, of people outside it
    y: np.ndarray

    @classmethod
    def of(cls, inputs: Inputs, progress: Progress) -> Measuring:
        """Return the maps of both halves of the people, and what is learnt from: the other half, or the reference."""
        data = inputs.data.to(torch.float64)
        if any(p.is_continuous for p in data.protected):
            raise OptionError("Alternatives compare groups; make groups of a number with a cut such as 'age<25'")
        learnt = data if inputs.fitting is None else inputs.fitting.to(torch.float64)
        for people, table, other in ((data, "table", "reference"), (learnt, "reference", "table")):
            if people.y is None or bool(people.y.isnan().all()):
                raise DataError(
                    f"Nobody in the {table} has a known outcome in the column '{inputs.options.label}'; alternatives "
                    f"need it, spelt as in the {other} if there is one"
                )
        if inputs.fitting is not None and (both := _shared(data, learnt)) > _MOST_SHARED:
            raise OptionError(
                f"{percent(both)} of the people in the table seem to be in the reference, too; give others, or no "
                "reference"
            )
        y, yes = (labelled_yes(replace(inputs, data=people)) for people in (data, learnt))
        if y is None or yes is None:
            raise OptionError(
                f"The label '{inputs.options.label}' has neither two classes nor, for a model of values, numbers; give "
                "another"
            )
        how: dict[str, Any] = {"encoding": inputs.encoding, "options": inputs.options, "progress": progress}
        folds = fit_folds(data, None, **how)
        if inputs.fitting is None:
            outside = [(~torch.isin(torch.arange(len(data)), fold.rows)).nonzero()[:, 0] for fold in folds]
            lessons = [Lesson(fold.test, data[rows], y[rows]) for fold, rows in zip(folds, outside, strict=True)]
        else:
            lessons = [Lesson(fit_folds(data, learnt, **how)[0].test, learnt, yes)] * len(folds)
        return cls(inputs, data, folds, lessons, y.double().numpy(force=True))

    @property
    def delta(self) -> float:
        """The delta of an audit of the model."""
        return delta_for(self.inputs.options, self.inputs.predictions, self.inputs.target.unit)

    @property
    def better(self) -> float:
        """How much smaller a mean effect must be for a further search to be worth it."""
        return _POINTS if self.inputs.target.unit == "probability" else _BETTER * self.delta

    def measure(self, name: str, kind: str, make: Make, model: Alternative | None) -> Alternative:
        """Return a candidate's performance and effects; `model` is the model as it is."""
        options, unit, make = self.inputs.options, self.inputs.target.unit, cache(make)  # folds may share a lesson
        deltas = self.inputs.by_group(options.delta_by_group)
        out, effect, same, limits = (np.full(len(self.data), np.nan) for _ in range(4))
        for k, fold in enumerate(self.folds):
            judge = (self.folds[1 - k] if self.inputs.fitting is None else fold).test  # no candidate has learnt from it
            people, _ = infer_groups(self.data[fold.rows], judge.auxiliary, judge.known)
            candidate = make(self.lessons[k])
            own = predict(candidate, people.x)
            out[fold.rows] = (own.sigmoid() if unit == "logit" else own).numpy(force=True)
            limits[fold.rows] = np.asarray(own_deltas(people, self.delta, deltas))
            for reading, into in ((measured_name(options), effect), (same_outcome_name(options), same)):
                if reading in judge.tests:
                    one = judge.measure_one(reading, candidate, people, predictions=own)
                    scores = torch.where(one.abstained.to(one.score.device), torch.nan, one.score)
                    into[fold.rows] = scores.double().numpy(force=True)
        counts = people_weights(self.data.weights, len(out))
        judged, known = ~np.isnan(effect), ~np.isnan(same)
        mean = weighted_mean(effect[judged], counts[judged])
        share = counts[judged] / counts[judged].sum()
        found = performance(out, self.y, counts)
        now, before = found[0].value, (found if model is None else model.performance)[0].value
        return Alternative(
            name=name,
            kind=kind,
            performance=found,
            mean_effect=mean,
            error=float(np.sqrt((share**2 * (effect[judged] - mean) ** 2).sum())),
            share_over=weighted_mean((effect > limits)[judged], counts[judged]),
            same_outcome=weighted_mean(same[known], counts[known]) if known.any() else None,
            loss=before - now if found[0].metric == "auc" else now / max(before, 1e-300) - 1,
        )

    def measure_all(
        self, others: Sequence[tuple[str, str, Make]], max_loss: float, *, until: float, say: Progress
    ) -> tuple[list[Alternative], dict[str, str]]:
        """Return the model as it is, its repairs and the others, measured, and why the rest was not."""
        tried: list[Alternative] = []
        not_run: dict[str, str] = {}
        itself = ("the model as it is", "model", self._as_it_is)
        others = [(name, kind, cache(make)) for name, kind, make in others]  # what is repaired is what was measured
        again = self.repairs_of_best(tried, {(kind, name): make for name, kind, make in others}, max_loss)
        plan = chain([itself], self.repairs(tried, max_loss, self._as_it_is), others, again)
        expected = 1 + 2 * (len(STRENGTHS) + _CLOSER) + len(others)
        for place, (name, kind, make) in enumerate(plan):
            if tried and perf_counter() > until:
                not_run[name] = _NOT_RUN
                continue
            say(name, 0.1 + 0.9 * place / expected)
            try:
                tried.append(self.measure(name, kind, make, tried[0] if tried else None))
            except (FairfoxError, ArithmeticError, RuntimeError, ValueError) as error:
                if not tried:  # the model itself
                    raise
                not_run[name] = f"{type(error).__name__}: {error}".splitlines()[0]
        return tried, not_run

    def repairs(
        self, tried: Sequence[Alternative], max_loss: float, make: Make, of: Alternative | None = None
    ) -> Iterator[tuple[str, str, Make]]:
        """Yield repairs of several strengths, then some whose loss should be just within `max_loss`.

        By then `tried` has the first ones: whoever asks for the next repair has measured those before. `of` is what is
        repaired, by default the model as it is.
        """
        before, loss = ("", 0.0) if of is None else (f"{of.name}, ", of.loss)
        names = {f"{before}repaired, strength {strength:g}": strength for strength in STRENGTHS}
        for name, strength in names.items():
            yield name, "repair", self._repaired(None, strength, make)
        for _ in range(_CLOSER):
            losses = dict(
                sorted([(0.0, loss), *((names[each.name], each.loss) for each in tried if each.name in names)])
            )
            strength = round(float(np.interp(max_loss, np.maximum.accumulate([*losses.values()]), [*losses])), 2)
            if len(losses) <= len(names) or losses[1.0] <= max_loss or strength in losses:
                break
            names[f"{before}repaired, strength {strength:g}"] = strength
            yield [*names][-1], "repair", self._repaired(None, strength, make)

    def repairs_of_best(
        self, tried: Sequence[Alternative], makes: Mapping[tuple[str, str], Make], max_loss: float
    ) -> Iterator[tuple[str, str, Make]]:
        """Yield repairs of the candidate that predicts best, where it predicts better than the model as it is."""
        others = (each for each in tried if each.kind in ("own", "search", "train_fair"))
        best = min(others, key=lambda each: each.loss, default=tried[0])
        if best.loss < 0:
            yield from self.repairs(tried, max_loss, makes[best.kind, best.name], best)

    def of_features(self) -> Iterator[tuple[str, str, Make]]:
        """Yield the model with single features dropped or repaired: those that the effect goes through most."""
        options = self.inputs.options
        readings = measure_folds(
            self.folds, self.inputs.target, self.data, self.inputs.predictions, progress=lambda text, done: None
        )
        through = explain(self.inputs.target, readings, aligned=False, seed=options.seed, batch_size=options.batch_size)
        names = [] if through.effect is None else [name for name, size in through.effect.total.items() if size > 0]
        for name in names[:_FEATURES]:
            yield f"{name} dropped", "feature", self._dropped(name)
            yield f"{name} repaired", "feature", self._repaired(name, 1.0, self._as_it_is)

    def fair_networks(self) -> Iterator[tuple[str, str, Make]]:
        """Yield networks that hide the protected variables; they learn labels of two classes."""
        if self.inputs.target.unit != "probability":
            return
        for floor in FLOORS:

            def make(lesson: Lesson, floor: float = floor) -> Model:
                known = replace(lesson.people, y=lesson.yes)[~lesson.yes.isnan()]
                net = train_networks(known, floors=[floor], seeds=[self.inputs.options.seed])[0]
                return TorchModel(net, output=Output("logit"))

            yield f"train_fair, floor {floor:g}", "train_fair", make

    def own(self, models: Mapping[str, object]) -> Iterator[tuple[str, str, Make]]:
        """Yield the user's own models."""
        for name, model in models.items():
            target = self._target(model, name)
            yield name, "own", lambda lesson, target=target: target  # type: ignore[misc]

    def searched(self, estimator: Any, search: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, Make]]:
        """Yield an estimator with each of some settings, fitted on the people it may learn from."""
        from sklearn.base import clone

        values = self.inputs.encoding.label_values
        for settings in search:

            def make(lesson: Lesson, settings: Mapping[str, Any] = settings) -> Model:
                known = lesson.people[~lesson.yes.isnan()]
                assert known.y is not None
                labels = known.y.numpy(force=True)
                labels = labels if values is None else np.asarray(values)[labels.astype(int)]
                weights = _fit_weights(estimator, known.weights)
                fitted = clone(estimator).set_params(**settings)
                fitted.fit(self.inputs.encoding.table(known.x), labels, **weights)
                return self._target(fitted, "the estimator")

            words = ", ".join(f"{name.rpartition('__')[2]}={value}" for name, value in settings.items())
            yield words or type(estimator).__name__, "search", make

    def _target(self, model: object, name: str) -> Model:
        """Return one of the user's models on encoded rows, of whose columns it may take some."""
        options, encoding = self.inputs.options, self.inputs.encoding
        described = describe(model, wanted=options.output)
        own = encoding.columns if described is None or described.names is None else described.names
        for each in own:
            if each not in encoding.columns:
                hint = did_you_mean(each, list(encoding.columns))
                raise OptionError(f"{name} takes the column '{each}', which the model as it is does not.{hint}")
        target = as_model(
            model, encoding.only(own), kind=options.kind, positive=options.positive, output=options.output,
            returns=options.returns, example=self.data.x[:1000],
        )  # fmt: skip
        if target.unit != self.inputs.target.unit:
            raise OptionError(f"{name} predicts a {target.unit}, and the model as it is a {self.inputs.target.unit}")
        return target

    def _as_it_is(self, lesson: Lesson) -> Model:
        return self.inputs.target

    def _repaired(self, feature: str | None, strength: float, base: Make) -> Make:
        def make(lesson: Lesson) -> Model:
            model = cast(TargetModel, base(lesson))  # no repair is repaired
            found = fit_correction(lesson.test, model, lesson.people, strength=strength, only=feature)
            return CorrectedModel(model, found)

        return make

    def _dropped(self, feature: str) -> Make:
        def make(lesson: Lesson) -> Model:
            columns = next(f.columns for f in self.data.features if f.name == feature)
            generator, x = torch.Generator().manual_seed(self.inputs.options.seed), lesson.people.x
            drawn = x[torch.randint(len(x), (_VALUES,), generator=generator)][:, columns]
            return WithoutFeature(self.inputs.target, columns, drawn)

        return make


@dataclass(frozen=True)
class WithoutFeature:
    """A model that does not see a feature: its prediction is averaged over values (K, W) of other people."""

    model: Model
    columns: slice
    values: Tensor
    differentiable = False

    def __call__(self, x: Tensor) -> Tensor:
        """Return (N, 1) for rows x (N, D)."""
        before, after = x[:, : self.columns.start], x[:, self.columns.stop :]
        tables = (torch.cat([before, own.expand(len(x), -1), after], dim=1) for own in self.values.to(x))
        return torch.stack([predict(self.model, rows) for rows in tables]).mean(0)[:, None]


def _some(table: object, most: int, seed: int) -> Any:
    """Return at most so many rows of a table, drawn at random."""
    people = load_table(table)
    return people[np.sort(np.random.default_rng(seed).permutation(len(people))[:most]).tolist()].to_native()


def _shared(people: Dataset, others: Dataset) -> float:
    """Return the share of people whose row is among the others', less the share of these that has a double there."""
    here, there = (
        row_marks(torch.cat([each.x, each.c, cast(Tensor, each.y)[:, None]], dim=1).nan_to_num(nan=-1e300))
        for each in (people, others)
    )
    if torch.equal(here.sort().values, there.sort().values):
        return 1.0
    _, place, counts = there.unique(return_inverse=True, return_counts=True)
    return float(torch.isin(here, there).double().mean() - (counts[place] > 1).double().mean())


def _fit_weights(estimator: Any, weights: Tensor | None) -> dict[str, np.ndarray]:
    """Return the weights of people as the estimator's `fit` takes them."""
    if weights is None:
        return {}
    from sklearn.utils.validation import has_fit_parameter

    steps = getattr(estimator, "steps", None)
    name, last = steps[-1] if steps else ("", estimator)
    if not has_fit_parameter(last, "sample_weight"):
        raise OptionError(f"A {type(last).__name__} takes no weights, and the people of the table have some")
    return {f"{name}__sample_weight".lstrip("_"): weights.numpy(force=True)}


def _settings_of_search(
    estimator: Any, grid: Mapping[str, Sequence[Any]] | None, searched: int, seed: int
) -> list[Mapping[str, Any]]:
    """Return settings drawn from a grid, each at most once."""
    if (estimator is None) != (grid is None):
        raise OptionError("A search needs both an estimator and a grid of its settings; give both, or neither")
    if estimator is None or grid is None:
        return []
    from sklearn.model_selection import ParameterGrid, ParameterSampler

    unknown = [name for name in grid if name not in estimator.get_params()]
    if unknown:
        hint = did_you_mean(unknown[0], list(estimator.get_params()))
        raise OptionError(f"The estimator has no setting '{unknown[0]}'.{hint}")
    most = min(searched, len(ParameterGrid(dict(grid))))
    return list(ParameterSampler(dict(grid), most, random_state=seed))

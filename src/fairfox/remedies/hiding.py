"""train_fair(table, ...): a model that hides the protected variables, and how much its output still reveals."""

from __future__ import annotations

import copy
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fairfox.auxiliary.adversarial import HidingSettings, train_networks
from fairfox.auxiliary.training import check_groups
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encoding import encode_feature, fit_encoding
from fairfox.data.files import write_text
from fairfox.data.table import Level, Table, column, listed, load_table
from fairfox.errors import DataError, FileError, OptionError
from fairfox.models.protocol import Description, Output, class_index
from fairfox.models.torch import TorchModel, load_mlp, save_mlp
from fairfox.statistics.performance import performance

_log = logging.getLogger("fairfox")
LEAKS = 0.60  # an AUC of the protected variable from the output above it is worth a warning
COLLAPSED = 0.60  # so is an AUC of the label below it
COSTLY = 0.10  # and one that is this far below the plain model's
FEWEST = 10  # people of a group in the held-out rows, for it to be measured


@dataclass(frozen=True)
class Leak:
    """How much an output reveals about one protected variable; a number is cut at its median."""

    variable: str
    auc: float  # of the group predicted best against all others, 0.5 to 1; NaN with fewer than two groups
    gap: float  # between the largest and the smallest mean prediction of a group
    means: dict[str, float]  # mean prediction by group


@dataclass(frozen=True)
class Measures:
    """A model's accuracy on held-out rows, and how much its output reveals about the protected variables."""

    rows: int
    accuracy: float  # of the label, cut at one half
    auc: float  # of the label
    leaks: tuple[Leak, ...]  # one per protected variable


@dataclass(frozen=True)
class FairModel:
    """A trained network that predicts from tables; `fairfox.audit` takes it as a model.

    Example:
        >>> x = torch.randn(400, 2, generator=torch.Generator().manual_seed(0))
        >>> data = Dataset.from_arrays(x, c=(x[:, 0] > 0).float(), y=(x[:, 1] > 0).float())
        >>> fair = train_fair(data, settings=HidingSettings(epochs=2))
        >>> fair.predict(x.numpy()).shape
        (400,)
    """

    net: nn.Sequential  # encoded x (N, D) -> logit (N, 1)
    features: tuple[Feature, ...]  # how a table becomes x
    held_out: Measures
    plain: Measures | None = None  # of a model that was trained alike and hides nothing
    warnings: tuple[str, ...] = ()
    positive: Level = 1  # the class of the label whose probability is predicted

    @property
    def model(self) -> TorchModel:
        """The probability, as a Model over rows encoded like the training rows."""
        return TorchModel(self.net, output=Output("logit"))

    def predict(self, table: object) -> np.ndarray:
        """Return the probability of the positive class (N,) for the rows of a table, an array or a file."""
        x = self.encode_table(table).to(next(self.net.parameters()).device)
        with torch.no_grad():
            return np.asarray(self.model(x)[:, 0].numpy(force=True))

    def encode_table(self, table: object) -> Tensor:
        """Return the encoded rows x (N, D) of a table, an array or a file, in float64."""
        rows = load_table(table)
        x = np.zeros((len(rows), self.features[-1].stop))
        for f in self.features:
            encode_feature(f, column(rows, f.name), x)
        return torch.as_tensor(x)

    def describe(self) -> Description:
        """Return how the model is called: for probabilities, with a table of its own columns."""
        categories = frozenset(f.name for f in self.features if f.kind == "categorical")
        names = tuple(f.name for f in self.features)
        return Description(self.predict, "table", returns="probability", names=names, as_category=categories)

    def save(self, path: str | Path) -> None:
        """Write the network as safetensors, and everything else to a JSON file beside it; `load_fair` reads both."""
        path = Path(path)
        save_mlp(copy.deepcopy(self.net).cpu(), path)
        beside = path.with_suffix(".json")
        fields = {name: value for name, value in asdict(replace(self, net=nn.Sequential())).items() if name != "net"}
        text = json.dumps(json.loads(beside.read_text(encoding="utf-8")) | fields, indent=2)
        write_text(text + "\n", beside)


def load_fair(path: str | Path) -> FairModel:
    """Return the model that `FairModel.save` wrote."""
    path = Path(path)
    net = load_mlp(path)
    assert isinstance(net, nn.Sequential)
    fields = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    if "features" not in fields:
        raise FileError(f"'{path.name}' holds a network without its columns, so no fair model saved it; use load_model")
    return FairModel(
        net=nn.Sequential(*list(net)[:-1]).eval(),  # without the sigmoid
        features=tuple(Feature(**{**f, "levels": tuple(f["levels"])}) for f in fields["features"]),
        held_out=_measures(fields["held_out"]),
        plain=None if fields["plain"] is None else _measures(fields["plain"]),
        warnings=tuple(fields["warnings"]),
        positive=fields["positive"],
    )


def _measures(fields: dict[str, Any]) -> Measures:
    return Measures(**{**fields, "leaks": tuple(Leak(**leak) for leak in fields["leaks"])})


def train_fair(
    data: object,
    *,
    label: str | None = None,
    protected: str | Sequence[str] | None = None,
    floor: float = 3.0,
    compare: bool = False,
    positive: Level = None,
    drop: str | Sequence[str] = (),
    categorical: str | Sequence[str] = (),
    continuous: str | Sequence[str] = (),
    merge_rare: float | None = None,
    intersections: bool = False,
    weights: str | None = None,
    held_out: float = 0.2,
    seed: int = 0,
    settings: HidingSettings | None = None,
) -> FairModel:
    """Return a network that predicts the label and hides the protected variables, measured on held-out rows.

    Args:
        data: a pandas, polars or pyarrow table, a 2-D array, a path, or a Dataset with labels 0 and 1; one on a GPU
            trains there.
        label: the column of true outcomes (tables only).
        protected: the protected column, a cut through one such as "age<25", or several (tables only). The columns
            they are read from are not inputs of the model.
        floor: the final weight of hiding against the label: 0 hides little, 3 most, 10 costs accuracy.
        compare: also train the same model without hiding, and measure it on the same rows.
        positive: the class of the label whose probability is predicted; of two classes the second.
        drop: columns to leave out.
        categorical: columns to read as categories whatever they look like.
        continuous: columns to read as numbers whatever they look like.
        merge_rare: merge protected classes with a smaller share of the people than this.
        intersections: also hide the intersections of the protected classes, such as "Female & Black".
        weights: the column that says how many people a row stands for.
        held_out: the share of the rows that is kept for measuring.
        seed: same seed, same machine, same model.
        settings: how the networks train; by default `settings_for` the number of rows.
    """
    Number(0).required("floor", floor)
    Number(0, 1, low_open=True, high_open=True).required("held_out", held_out)
    Number(0, 0.5, low_open=True, high_open=True).check("merge_rare", merge_rare)
    options: dict[str, Any] = {"label": label, "protected": protected, "positive": positive, "weights": weights}
    options |= {"drop": drop, "categorical": categorical, "continuous": continuous}
    options |= {"merge_rare": merge_rare, "intersections": intersections}
    people, predicted = _taken(data, options) if isinstance(data, Dataset) else _read(load_table(data), **options)
    people = _with_labels(people)
    fitting, rest = people.split(1 - held_out, seed=seed)
    check_groups(people, fitting)
    floors = [float(floor), None] if compare else [float(floor)]
    nets = train_networks(fitting, floors=floors, seeds=[seed] * len(floors), settings=settings)
    measures = [measure(TorchModel(net, output=Output("logit"))(rest.x)[:, 0], rest) for net in nets]
    plain = measures[1] if compare else None
    warnings = tuple(_warnings(measures[0], plain))
    for text in warnings:
        _log.warning(text)
    return FairModel(nets[0], people.features, measures[0], plain, warnings, predicted)


def measure(predictions: Tensor, data: Dataset) -> Measures:
    """Return the accuracy of predictions (N,) of the label, and how much they reveal about the protected variables."""
    assert data.y is not None
    out, y, c = (part.double().numpy(force=True) for part in (predictions, data.y, data.c))
    counts = np.ones(len(out)) if data.weights is None else data.weights.double().numpy(force=True)
    leaks = tuple(_leak(out, c[:, v], p, counts) for v, p in enumerate(data.protected))
    right = float(np.average((out > 0.5) == (y == 1), weights=counts))
    return Measures(len(out), right, _auc(out, y == 1, counts), leaks)


def _leak(out: np.ndarray, c: np.ndarray, p: Protected, counts: np.ndarray) -> Leak:
    groups = {name: rows for name, rows in _groups(c, p) if counts[rows].sum() > 0 and rows.sum() >= FEWEST}
    means = {name: float(np.average(out[rows], weights=counts[rows])) for name, rows in groups.items()}
    if len(groups) < 2:
        return Leak(p.name, math.nan, math.nan, means)
    known = ~np.isnan(c)
    each = [_auc(out[known], rows[known], counts[known]) for rows in groups.values()]
    return Leak(p.name, max(max(auc, 1 - auc) for auc in each), max(means.values()) - min(means.values()), means)


def _groups(c: np.ndarray, p: Protected) -> Iterator[tuple[str, np.ndarray]]:
    """Yield the groups of a protected variable and who is in them (N,); the halves of a number."""
    if p.is_continuous:
        middle = float(np.nanmedian(c))
        yield f"up to {middle:g}", c <= middle
        yield f"above {middle:g}", c > middle
    for code, level in enumerate(p.levels):
        yield level, c == code


def _auc(out: np.ndarray, truth: np.ndarray, counts: np.ndarray) -> float:
    """Return how often a true one is above a false one; NaN where there is only one kind."""
    found = performance(out, truth, counts)
    return next((each.value for each in found if each.metric == "auc"), math.nan)


def _warnings(hidden: Measures, plain: Measures | None) -> Iterator[str]:
    """Yield what a reader must know: the output leaks, or the label is lost."""
    for leak in hidden.leaks:
        if math.isnan(leak.auc):
            yield (
                f"The held-out rows have fewer than two groups of '{leak.variable}' with at least {FEWEST} people: "
                "what the output reveals about it could not be measured."
            )
        elif leak.auc > LEAKS:
            yield (
                f"The output still reveals '{leak.variable}' (AUC {leak.auc:.3f}, chance 0.5; mean predictions "
                f"differ by up to {leak.gap:.3f}); raise the floor, or drop the columns that give it away."
            )
    if hidden.auc < COLLAPSED:
        yield f"The model hardly predicts the label (AUC {hidden.auc:.3f}, chance 0.5); lower the floor, or hide less."
    elif plain is not None and hidden.auc < plain.auc - COSTLY:
        yield (
            f"Hiding costs much accuracy (AUC {hidden.auc:.3f}, {plain.auc:.3f} for a plain model); lower the floor."
        )


def _taken(data: Dataset, options: dict[str, Any]) -> tuple[Dataset, Level]:
    """Return a Dataset as it is, and the class that is 1; how tables are read does not concern it."""
    given = [name for name, value in options.items() if value not in (None, False, (), [])]
    if given:
        raise OptionError(f"A Dataset has a label, features and protected variables already; leave out {listed(given)}")
    return data, 1


def _read(
    table: Table, *, label: str | None, protected: object, positive: Level, **options: Any
) -> tuple[Dataset, Level]:
    """Return the people of a table with labels 0 and 1, and the class that is 1."""
    specs = [protected] if isinstance(protected, str) else protected
    if label is None or not specs or not isinstance(specs, Sequence) or not all(isinstance(s, str) for s in specs):
        raise OptionError(
            f"label is {label!r} and protected is {protected!r}; a table needs both: the column to predict, and the "
            "columns to hide or cuts through them such as 'age<25'"
        )
    encoding = fit_encoding(table, protected=specs, label=label, **options)
    data, values = encoding.encode(table), encoding.label_values
    assert data.y is not None
    if values is None or len(values) < 2 or (len(values) > 2 and positive is None):
        what = "numbers" if values is None else f"{len(values)} class(es): {listed(map(str, values))}"
        raise DataError(
            f"The label '{label}' holds {what}; expected two classes, or choose the one to predict (positive=...)"
        )
    code = 1 if positive is None else class_index(positive, list(values))
    return replace(data, y=torch.where(data.y.isnan(), data.y, (data.y == code).to(data.y))), values[code]


def _with_labels(data: Dataset) -> Dataset:
    """Return the people whose label is known, or raise where nothing can be learnt from them."""
    if data.y is None:
        raise DataError("These people have no labels y, which a model learns to predict; give people with labels")
    known = data[~data.y.isnan()]
    assert known.y is not None
    if known.y.unique().tolist() != [0, 1]:
        raise DataError(f"The labels y hold {listed(map(str, known.y.unique().tolist()))}; expected both 0 and 1")
    if not data.protected:
        raise DataError("These people have no protected variable, so there is nothing to hide; give one")
    return known

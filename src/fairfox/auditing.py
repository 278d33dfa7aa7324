"""audit(model, table, ...): the whole flow, from a model and a table to an AuditResult."""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from numbers import Integral, Real
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fairfox.crossfit import Progress, Readings, cross_fit
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.doubts import find_doubts
from fairfox.errors import OptionError
from fairfox.explain import effect_by_feature
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import about
from fairfox.models.description import Description, Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model, describe
from fairfox.result import AuditResult, FeatureEffect, Features, Group
from fairfox.thresholds import confident_flag, default_delta, flag

_log = logging.getLogger("fairfox")
_LOOKED_AT = 1000  # people on whom it is found out what the model returns
_EXPLAINED = 100  # people whom a black box is asked about feature by feature, drawn at random
_WORST = 20  # and the people with the highest scores


def audit(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    label: str | None = None,
    test: str = "rank",
    delta: float | None = None,
    reference: object | None = None,
    seed: int = 0,
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
    drop: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    id: str | None = None,
    positive: Any = None,
    output: Wanted = "probability",
    returns: Returns | None = None,
    kind: Kind | None = None,
    refits: int = 5,
    folds: int = 5,
    batch_size: int = 4096,
    progress: Progress | None = None,
) -> AuditResult:
    """Return, for every person in the table, whether the model treats them differently because of c.

    Args:
        model: a torch module, a scikit-learn estimator or Pipeline, or a function from a table to predictions.
        table: the people: a pandas, polars or pyarrow table, a 2-D array, or a path.
        protected: the protected column, or a cut through one such as "age<25". It is no input of the model
            unless the model names it among its columns.
        label: the column of true outcomes, kept from the model.
        test: the fairness test, see `fairfox.FAIR_TESTS`.
        delta: people with a score above it are flagged; by default the test's own.
        reference: rows to learn from. Without it the table is cross-fitted: nobody is scored by an
            auxiliary or map that has seen them.
        seed: same seed, same machine, same numbers.
        categorical: columns to read as categories whatever they look like.
        continuous: columns to read as numbers whatever they look like.
        drop: columns to leave out.
        columns: the columns the model takes, in its order; by default its own feature names, else all but the
            protected, label, id and dropped ones.
        id: the column that names people.
        positive: the audited class, where the model has several.
        output: audit the "probability" or the "logit".
        returns: what the model returns, "probability", "logit" or "value", where that is not clear.
        kind: what the model receives, "table", "matrix" or "encoded".
        refits: how many times auxiliaries and maps are fitted; their spread gives the intervals.
        folds: parts of the cross-fitting.
        batch_size: rows per block.
        progress: called with what is being done and the fraction done.
    """
    started = perf_counter()
    say = progress or (lambda text, fraction: None)
    what = about(test)
    _check_options(
        protected=protected,
        delta=delta,
        output=output,
        returns=returns,
        seed=(seed, 0),
        refits=(refits, 1),
        folds=(folds, 2),
        batch_size=(batch_size, 1),
    )
    say("reading the table", 0.0)
    people, fitting = load_table(table), None if reference is None else load_table(reference)
    described = describe(model, wanted=output)
    categorical, continuous = ([n] if isinstance(n, str) else list(n) for n in (categorical, continuous))
    if described is not None:
        columns = _columns_of(described, people.columns) if columns is None else columns
        categorical = [*categorical, *sorted(described.as_category & set(people.columns) - {*categorical, *continuous})]
    encoding = fit_encoding(
        people if fitting is None else fitting,
        protected=[protected] if isinstance(protected, str) else list(protected),
        label=label,
        id_column=id,
        drop=drop,
        categorical=categorical,
        continuous=continuous,
        columns=columns,
        also=None if fitting is None else people,
        dtype=torch.float64,
        seed=seed,
    )
    if len(encoding.sources) > 1:
        raise OptionError("Several protected variables were given; one at a time can be audited for now")
    data = encoding.encode(people)
    looked_at = data.x[:_LOOKED_AT]
    target = as_model(model, encoding, kind=kind, positive=positive, output=output, returns=returns, example=looked_at)
    dtype = torch.float32 if target.differentiable else torch.float64
    data = data.to(dtype)
    known = None if fitting is None else encoding.encode(fitting).to(dtype)
    predictions = predict(target, data.x, batch_size=batch_size)
    guessed = returns is None and (described is None or described.returns is None)
    if guessed and _unit_of(target) == "probability" and not ((predictions >= 0) & (predictions <= 1)).all():
        raise OptionError(
            f"The first {_LOOKED_AT} predictions lie within 0 and 1 and others do not; say what the model returns: "
            "returns='probability', 'logit' or 'value' (--returns)"
        )
    aligned = test.endswith("/a")
    runs = cross_fit(
        target,
        data,
        known,
        predictions,
        test.removesuffix("/a"),
        refits=refits,
        folds=folds,
        seed=seed,
        batch_size=batch_size,
        progress=say,
    )
    share = runs.alignment.value
    main = _scaled(runs.main, share) if aligned else runs.main
    unit = _unit_of(target)
    if delta is None:
        delta = default_delta(what.delta, predictions, unit=unit) if what.of_prediction else what.delta
    say("explaining", 0.9)
    explained = _explain(target, data, runs, main, share if aligned else 1.0, seed=seed, batch_size=batch_size)
    flags = flag(main.score, delta, abstained=main.abstained)
    interval = main.interval
    confident = None if interval is None else confident_flag(interval, delta, abstained=main.abstained)
    variable = data.protected[0]
    warnings = find_doubts(target, data, known, predictions, replace(runs, main=main), test)
    if returns is None and unit == "value" and described is None:
        warnings.append(
            f"The model's outputs, from {float(predictions.min()):.3g} to {float(predictions.max()):.3g}, are taken as "
            "values in their own units; if they are log-odds, say returns='logit' (--returns logit)."
        )
    for text in warnings:
        _log.warning(text)
    say("done", 1.0)
    counterfactual = runs.total.counterfactual if main.counterfactual is None else main.counterfactual
    return AuditResult(
        scores=main.score,
        signed=main.signed,
        interval=interval,
        flags=flags,
        confident_flags=confident,
        abstained=main.abstained,
        reasons=main.reasons,
        predictions=predictions,
        direct=_known(runs.direct),
        total=_known(runs.total),
        counterfactual=counterfactual,
        ids=data.ids,
        group=tuple("unknown" if g != g else variable.levels[int(g)] for g in data.c[:, 0].tolist()),
        alignment_share={variable.name: share},
        alignment_error={variable.name: runs.alignment.error},
        features=Features(proxy=runs.proxy, effect=explained),
        auxiliary=(runs.quality,),
        groups=_groups(data, predictions, main, flags, confident),
        delta=delta,
        test=test,
        meaning=what.meaning,
        unit=f"{what.unit} ({unit})" if what.of_prediction else what.unit,
        warnings=tuple(warnings),
        settings={
            "seed": seed,
            "test": test,
            "protected": variable.name,
            "label": label,
            "reference": fitting is not None,
            "rows": len(data),
            "reference_rows": None if known is None else len(known),
            "columns": list(encoding.columns),
            "refits": refits,
            "folds": None if fitting is not None else folds,
            "batch_size": batch_size,
            "output": output,
            "positive": None if positive is None else str(positive),
            "model": type(model).__name__,
            "model_kind": _kind_of(target),
            "differentiable": target.differentiable,
            "versions": _versions(),
            "seconds": round(perf_counter() - started, 3),
        },
        counterfactual_table=None if counterfactual is None else encoding.own_table(counterfactual),
    )


def _columns_of(described: Description, table: Sequence[str]) -> Sequence[str] | None:
    """Return the columns a model takes; f0, f1, ... may be its own names or made up: the table's columns decide."""
    if described.names is None and described.width is not None:
        for stem in ("f", "Column_", ""):
            counted = [f"{stem}{j}" for j in range(described.width)]
            if set(counted) <= set(table):
                return counted
    return described.names


def _known(reading: Measurement) -> Tensor:
    """Return a reading's signed effects (N,), NaN where it abstained."""
    assert reading.signed is not None
    return torch.where(reading.abstained.to(reading.signed.device), torch.nan, reading.signed)


def _scaled(measured: Measurement, share: float) -> Measurement:
    signed = None if measured.signed is None else measured.signed * share
    return replace(measured, score=measured.score * share, signed=signed, refits=measured.refits * share)


def _explain(
    target: Model, data: Dataset, runs: Readings, main: Measurement, share: float, *, seed: int, batch_size: int
) -> FeatureEffect | None:
    """Return contributions of features to the map's effect: of everyone, or of a sample for a black box."""
    own = main.counterfactuals is not None
    mapped = main.counterfactuals if own else runs.total.counterfactuals
    if mapped is None:
        return None
    drawn = torch.ones(len(data), dtype=torch.bool)
    asked = drawn
    if not target.differentiable and len(data) > _EXPLAINED:
        order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed))
        drawn = torch.zeros(len(data), dtype=torch.bool)
        drawn[order[:_EXPLAINED]] = True
        asked = drawn.clone()
        asked[main.score.cpu().argsort(descending=True)[:_WORST]] = True
    judged = ~(main if own else runs.total).abstained.cpu()
    rows = (asked & judged).nonzero()[:, 0]
    each = effect_by_feature(target, data.x[rows], mapped[:, rows], data.features, seed=seed, batch_size=batch_size)
    per_person = each.new_full((len(data), len(data.features)), torch.nan)
    per_person[rows] = each * (share if own else 1.0)
    method = "integrated gradients" if target.differentiable else "sampled Shapley values"
    return FeatureEffect(tuple(f.name for f in data.features), per_person, method, drawn)


def _groups(
    data: Dataset, predictions: Tensor, main: Measurement, flags: Tensor, confident: Tensor | None
) -> tuple[Group, ...]:
    out = []
    p = data.protected[0]
    for code, level in enumerate(p.levels):
        members = data.c[:, 0] == code
        judged = members & ~main.abstained.to(members.device)
        n = max(int(judged.sum()), 1)
        out.append(
            Group(
                variable=p.name,
                level=level,
                people=int(members.sum()),
                mean_prediction=float(predictions[members].mean()) if members.any() else float("nan"),
                mean_signed=float(main.signed[judged].sum()) / n if main.signed is not None else None,
                share_flagged=float(flags[judged].sum()) / n,
                share_confident=None if confident is None else float(confident[judged].sum()) / n,
            )
        )
    return tuple(out)


def _check_options(
    *, protected: object, delta: object, output: object, returns: object, **whole_numbers: tuple[object, int]
) -> None:
    """Refuse what is no option before any work is done; `whole_numbers` are (value, least) by name."""
    texts = [protected] if isinstance(protected, str) else protected
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise OptionError(
            f"protected is {protected!r}; expected a column name, a cut such as 'age<25', or a list of them"
        )
    if delta is not None and not (isinstance(delta, Real) and 0 <= float(delta) < math.inf):
        raise OptionError(f"delta is {delta!r}; expected a number of at least 0")
    for name, (value, least) in whole_numbers.items():
        if not isinstance(value, Integral) or int(value) < least:
            raise OptionError(f"{name} is {value!r}; expected a whole number of at least {least}")
    for name, value, known in (
        ("output", output, ("probability", "logit")),
        ("returns", returns, (None, "probability", "logit", "value")),
    ):
        if value not in known:
            expected = " or ".join(repr(k) for k in known if k is not None)
            raise OptionError(f"{name} is {value!r}; expected {expected}")


def _unit_of(target: Model) -> str:
    """Return what the audited number is: "probability", "logit" or "value"."""
    unit: str = getattr(getattr(target, "output", None), "unit", "value")
    return unit


def _kind_of(target: Model) -> str:
    """Return what the model receives: "table", "matrix" or "encoded"."""
    kind: str = getattr(target, "kind", "encoded" if getattr(target, "encoded", True) else "matrix")
    return kind


def _versions() -> dict[str, str]:
    out = {"python": platform.python_version()}
    for package in ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals"):
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out

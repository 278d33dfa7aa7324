"""audit(model, table, ...): the whole flow, from a model and a table to an AuditResult."""

from __future__ import annotations

import logging
import platform
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from itertools import combinations
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.quality import quality_warnings
from fairfox.crossfit import Progress, Readings, cross_fit
from fairfox.data.dataset import Dataset
from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.evaluation import spearman
from fairfox.explain import effect_by_feature
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import about
from fairfox.models.description import Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model, feature_names
from fairfox.result import AuditResult, FeatureEffect, Features, Group
from fairfox.thresholds import confident_flag, default_delta, flag

_log = logging.getLogger("fairfox")
_EXPLAINED = 100  # people whom a black box is asked about feature by feature, drawn at random
_WORST = 20  # and the people with the highest scores
_SMALL_GROUP = 0.05


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
    _check_options(delta=delta, seed=seed, refits=refits, folds=folds, batch_size=batch_size)
    say("reading the table", 0.0)
    people, fitting = load_table(table), None if reference is None else load_table(reference)
    encoding = fit_encoding(
        people if fitting is None else fitting,
        protected=[protected] if isinstance(protected, str) else list(protected),
        label=label,
        id_column=id,
        drop=drop,
        categorical=categorical,
        continuous=continuous,
        columns=feature_names(model, wanted=output),
        also=None if fitting is None else people,
        dtype=torch.float64,
        seed=seed,
    )
    if len(encoding.sources) > 1:
        raise OptionError("Several protected variables were given; one at a time can be audited for now")
    data = encoding.encode(people)
    target = as_model(model, encoding, kind=kind, positive=positive, output=output, returns=returns, example=data.x)
    dtype = torch.float32 if target.differentiable else torch.float64
    data = data.to(dtype)
    known = None if fitting is None else encoding.encode(fitting).to(dtype)
    predictions = predict(target, data.x, batch_size=batch_size)
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
    unit = getattr(getattr(target, "output", None), "unit", "value")
    if delta is None:
        delta = default_delta(what.delta, predictions, unit=unit) if what.of_prediction else what.delta
    say("explaining", 0.9)
    explained = _explain(target, data, runs, main, share if aligned else 1.0, seed=seed, batch_size=batch_size)
    flags = flag(main.score, delta, abstained=main.abstained)
    interval = main.interval
    confident = None if interval is None else confident_flag(interval, delta, abstained=main.abstained)
    variable = data.protected[0]
    warnings = [
        *_data_warnings(data, known, predictions),
        *quality_warnings(runs.quality),
        *_run_warnings(main, runs.direct, test),
    ]
    for text in warnings:
        _log.warning(text)
    say("done", 1.0)
    counterfactual = runs.total.counterfactual
    return AuditResult(
        scores=main.score,
        signed=main.signed,
        interval=interval,
        flags=flags,
        confident_flags=confident,
        abstained=main.abstained,
        reasons=main.reasons,
        predictions=predictions,
        direct=runs.direct.signed if runs.direct.signed is not None else runs.direct.score,
        total=runs.total.signed if runs.total.signed is not None else runs.total.score,
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
    rows = asked.nonzero()[:, 0]
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


def _data_warnings(data: Dataset, known: Dataset | None, predictions: Tensor) -> list[str]:
    out = []
    fitting = data if known is None else known
    p = data.protected[0]
    for code, level in enumerate(p.levels):
        share = float((fitting.c[:, 0] == code).float().mean())
        if share < _SMALL_GROUP:
            out.append(
                f"Group '{level}' of '{p.name}' is only {share:.1%} of the fitting rows: its readings are coarse."
            )
    unknown = int(data.c[:, 0].isnan().sum())
    if unknown:
        out.append(f"'{p.name}' is unknown for {unknown} people: they have no other group to be compared with.")
    if len(predictions) and float(predictions.max() - predictions.min()) == 0:
        out.append(f"The model predicts {float(predictions[0]):.4g} for everyone: a constant model treats all alike.")
    empty = [
        f.name for f in data.features if f.kind == "categorical" and bool((data.x[:, f.columns].sum(1) == 0).any())
    ]
    if empty:
        out.append(f"Categories unknown to the fitting rows in: {', '.join(empty)}; those people keep them.")
    return out


def _run_warnings(main: Measurement, direct: Measurement, test: str) -> list[str]:
    out = []
    refits = main.refits.abs().double().cpu()
    if refits.shape[1] > 1 and test.split("/")[0] not in ("rank", "fta", "fta+linear") and float(refits.std()) > 0:
        pairs = [spearman(refits[:, i], refits[:, j]) for i, j in combinations(range(refits.shape[1]), 2)]
        lowest = min(pairs)
        if lowest < 0.5:
            out.append(
                f"Re-trained auxiliaries disagree on who is affected most (lowest rank correlation {lowest:.2f})."
            )
    if direct.overshoot is not None:
        far = float((direct.overshoot > 0.5).float().mean())
        if far > 0.05:
            out.append(
                f"The direct reading leaves the range of real categories for {far:.0%} of people: read it with care."
            )
    return out


def _check_options(*, delta: float | None, seed: int, refits: int, folds: int, batch_size: int) -> None:
    if delta is not None and not 0 <= delta < float("inf"):
        raise OptionError(f"delta is {delta}; expected a number of at least 0")
    for name, value, least in (
        ("seed", seed, 0),
        ("refits", refits, 1),
        ("folds", folds, 2),
        ("batch_size", batch_size, 1),
    ):
        if value < least:
            raise OptionError(f"{name} is {value}; expected at least {least}")


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

"""audit(model, table, ...): the whole flow, from a model and a table to an AuditResult."""

from __future__ import annotations

import logging
import math
import platform
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from fairfox.auxiliary.model import centre_and_spread
from fairfox.comparison import ALL, Comparison, applicable, check_used, options_by_test
from fairfox.crossfit import Progress, Readings, cross_fit
from fairfox.data.columns import Table
from fairfox.data.contrasts import LOWER
from fairfox.data.dataset import Dataset, Protected, group_name
from fairfox.data.encode import fit_encoding
from fairfox.data.joins import join_protected
from fairfox.data.protected import find_group
from fairfox.data.table import load_table
from fairfox.doubts import find_doubts
from fairfox.errors import OptionError
from fairfox.explain import effect_by_feature
from fairfox.extras import installed_versions
from fairfox.fairtests.protocol import Measurement
from fairfox.fairtests.registry import about, check_auditable, check_direction, check_holding, check_options
from fairfox.findings import find, own_deltas
from fairfox.flips import transparency
from fairfox.models.description import Description, Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model, describe
from fairfox.result import AuditResult, FeatureEffect, Features
from fairfox.thresholds import confident_flag, default_delta, flag

_log = logging.getLogger("fairfox")
_PACKAGES = ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals")
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
    options: Mapping[str, object] | None = None,
    delta: float | None = None,
    deltas: Mapping[str, float] | None = None,
    limits: Mapping[str, float] | None = None,
    reference: object | None = None,
    intersections: bool = False,
    hold_others: bool = False,
    reference_group: str | Sequence[str] | None = None,
    merge_rare: float | None = None,
    protected_from: object | None = None,
    on: str | None = None,
    weights: str | None = None,
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
        protected: the protected column, a cut through one such as "age<25", or several: two groups, many classes
            or a number. They are no inputs of the model unless the model names them among its columns. Where a value
            is missing, the most probable one takes its place.
        label: the column of true outcomes, kept from the model.
        test: the fairness test, see `fairfox.FAIR_TESTS`; "all": rank, and every other one that applies beside it.
        options: settings of the test: {"epsilon": 0.5} for fta, {"graph": {"income": ["sex"]}} for counterfactual; of
            one of all tests: {"fliptest.steps": 5000}.
        delta: people with a score above it are flagged; by default the test's own.
        deltas: another delta for single groups: {"Female": 0.03, "race=Black": 0.02}. For people of several of them
            the strictest counts.
        limits: the largest share of people that may be flagged, in all ("") and in single groups: {"": 0.1,
            "race=Black": 0.05}; `AuditResult.over_limits` says which are exceeded.
        reference: rows to learn from. Without it the table is cross-fitted: nobody is scored by an
            auxiliary or map that has seen them. With it the table itself need not have the protected columns.
        intersections: also compare the crossings of the protected classes, such as "Female & Black".
        hold_others: compare with people who are alike in the other protected variables; without it each variable
            is looked at as if it were the only one.
        reference_group: compare every class with this one only ("White" or "race=White"); one per variable.
        merge_rare: put together classes with a smaller share of the people than this.
        protected_from: another table that has the protected columns, found by the column `on` of both.
        on: the column that names people in both tables; it is no input of the model.
        weights: the column that says how many people a row stands for.
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
    several, test = test == ALL, "rank" if test == ALL else test
    what = about(test, None if several else options)
    check_auditable(test)
    check_options(test, None if several else options)
    settings = options_by_test(options) if several else {test.removesuffix("/a"): options or {}}
    specs = _checked_protected(protected)
    _check_options(
        delta=delta,
        deltas=deltas,
        limits=limits,
        merge_rare=merge_rare,
        weights=weights,
        output=output,
        returns=returns,
        seed=(seed, 0),
        refits=(refits, 1),
        folds=(folds, 2),
        batch_size=(batch_size, 1),
    )
    if reference_group:
        check_direction(test)
    if hold_others:
        check_holding(test)
        if len(specs) < 2:
            raise OptionError("hold_others (--hold-others) needs at least two protected variables; name another one")
    say("reading the table", 0.0)
    people, fitting = load_table(table), None if reference is None else load_table(reference)
    people, matched = _with_protected(people, protected_from, on, specs)
    described = describe(model, wanted=output)
    categorical, continuous = ([n] if isinstance(n, str) else list(n) for n in (categorical, continuous))
    if described is not None:
        columns = _columns_of(described, people.columns) if columns is None else columns
        categorical = [*categorical, *sorted(described.as_category & set(people.columns) - {*categorical, *continuous})]
    encoding = fit_encoding(
        people if fitting is None else fitting,
        protected=specs,
        label=label,
        id_column=id,
        weights=weights,
        drop=drop,
        hidden=[] if on is None else [on],
        categorical=categorical,
        continuous=continuous,
        columns=columns,
        intersections=intersections,
        merge_rare=merge_rare,
        reference_group=reference_group or (),
        also=None if fitting is None else people,
        dtype=torch.float64,
        seed=seed,
    )
    data = encoding.encode(people)
    own_delta, own_limit = (_by_group(given or {}, data.protected) for given in (deltas, limits))
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
    others: list[str] = []
    skipped: dict[str, str] = {}
    if several:
        others, skipped = applicable(
            data.protected,
            gradient=target.differentiable,
            labelled=data.y is not None,
            takes_c=bool(data.withheld.any()),
            graph="graph" in (options or {}),
            compared=bool(reference_group),
            held=hold_others,
        )
        check_used(settings, skipped)
    runs = cross_fit(
        target,
        data,
        known,
        predictions,
        test,
        others=others,
        options=settings,
        hold_others=hold_others,
        refits=refits,
        folds=folds,
        seed=seed,
        batch_size=batch_size,
        progress=say,
    )
    main, unit = runs.main, _unit_of(target)
    if delta is None:
        delta = default_delta(what.delta, predictions, unit=unit) if what.of_prediction else what.delta
    say("explaining", 0.9)
    explained = _explain(target, data, runs, test, seed=seed, batch_size=batch_size)
    limit = own_deltas(runs.people, delta, own_delta)
    interval, fitted_on = main.interval, data if known is None else known
    findings = tuple(
        find(
            runs,
            v,
            predictions=predictions,
            delta=limit,
            spread=float(centre_and_spread(fitted_on.c[:, v], fitted_on.weights)[1]),
            merged=dict(source.merged),
        )
        for v, source in enumerate(encoding.sources)
    )
    warnings = find_doubts(target, data, known, predictions, runs, test)
    warnings += _about_output(predictions, unit) if returns is None and described is None else []
    for text in warnings:
        _log.warning(text)
    say("done", 1.0)
    counterfactual = runs.total.counterfactual if main.counterfactual is None else main.counterfactual
    return AuditResult(
        scores=main.score,
        signed=main.signed,
        interval=interval,
        flags=flag(main.score, limit, abstained=main.abstained),
        confident_flags=None if interval is None else confident_flag(interval, limit, abstained=main.abstained),
        abstained=main.abstained,
        reasons=main.reasons,
        predictions=predictions,
        worst=main.variable,
        findings=findings,
        counterfactual=counterfactual,
        ids=data.ids,
        features=Features(
            proxy=_strongest(runs.proxy), effect=explained, displacement=_displacement(runs, counterfactual)
        ),
        delta=delta,
        deltas=own_delta,
        test=test,
        meaning=what.meaning,
        unit=f"{what.unit} ({unit})" if what.of_prediction else what.unit,
        warnings=tuple(warnings),
        weights=data.weights,
        checks=runs.checks.get(test.removesuffix("/a"), {}),
        comparison=Comparison.of(runs, skipped) if several else None,
        settings={
            "seed": seed,
            "test": test,
            "options": None if options is None else {name: str(value) for name, value in options.items()},
            "protected": [p.name for p in data.protected],
            "label": label,
            "reference": fitting is not None,
            "rows": len(data),
            "reference_rows": None if known is None else len(known),
            "columns": list(encoding.columns),
            "intersections": intersections,
            "hold_others": hold_others,
            "merge_rare": merge_rare,
            "weights": weights,
            "max_flagged": own_limit or None,
            "on": on,
            "matched_rows": matched,
            "refits": refits,
            "folds": None if fitting is not None else folds,
            "batch_size": batch_size,
            "output": output,
            "positive": None if positive is None else str(positive),
            "model": type(model).__name__,
            "model_kind": _kind_of(target),
            "differentiable": target.differentiable,
            "versions": {"python": platform.python_version(), **installed_versions(*_PACKAGES)},
            "seconds": round(perf_counter() - started, 3),
        },
        counterfactual_table=None if counterfactual is None else encoding.own_table(counterfactual),
    )


def _with_protected(
    people: Table, other: object | None, on: str | None, specs: Sequence[str]
) -> tuple[Table, int | None]:
    """Return the people with the protected columns of another table, and how many were found there."""
    if (other is None) != (on is None):
        raise OptionError(
            "Protected values from another table need both: the table (protected_from, --protected-from) and the "
            "column that names people in both tables (on, --on)"
        )
    if other is None or on is None:
        return people, None
    joined = join_protected(people, load_table(other), on=on, specs=specs)
    return joined.table, joined.matched


def _columns_of(described: Description, table: Sequence[str]) -> Sequence[str] | None:
    """Return the columns a model takes; f0, f1, ... may be its own names or made up: the table's columns decide."""
    if described.names is None and described.width is not None:
        for stem in ("f", "Column_", ""):
            counted = [f"{stem}{j}" for j in range(described.width)]
            if set(counted) <= set(table):
                return counted
    return described.names


def _explain(
    target: Model, data: Dataset, runs: Readings, test: str, *, seed: int, batch_size: int
) -> FeatureEffect | None:
    """Return contributions of features to the map's effect: of everyone, or of a sample for a black box."""
    main = runs.main
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
    if test.endswith("/a"):
        each = each * torch.tensor([share.value for share in runs.alignment]).to(each)[main.variable[rows], None]
    per_person[rows] = each * _directions(main if own else runs.total, data.protected)[rows, None].to(each)
    method = "integrated gradients" if target.differentiable else "sampled Shapley values"
    return FeatureEffect(tuple(f.name for f in data.features), per_person, method, drawn)


def _displacement(runs: Readings, mapped: Tensor | None) -> dict[str, float]:
    """Return how far each feature of the first class's people moves on average when they are mapped, largest first.

    Of the first protected variable, where it is a class: who is judged, and mapped because of it.
    """
    people, measured = runs.people, runs.total if runs.main.counterfactuals is None else runs.main
    among = (people.c[:, 0].cpu() == 0) & ~measured.abstained.cpu() & (measured.variable.cpu() == 0)
    if mapped is None or people.protected[0].is_continuous or not bool(among.any()):
        return {}
    strength = transparency(people, mapped.to(people.x), among=among.to(people.x.device)).strength.tolist()
    named = zip([f.name for f in people.features], strength, strict=True)
    return dict(sorted(named, key=lambda pair: -pair[1]))


def _directions(measured: Measurement, protected: Sequence[Protected]) -> Tensor:
    """Return -1 for people whose number went down (N,), since signed values always point up, else +1."""
    down = [protected[c.variable].is_continuous and c.towards == LOWER for c in measured.contrasts]
    return torch.where(torch.tensor(down), -1.0, 1.0)[measured.worst.cpu()]


def _strongest(proxies: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return how strongly each feature gives any of the protected variables away, largest first."""
    strongest = {name: max(proxy[name] for proxy in proxies) for name in proxies[0]}
    return dict(sorted(strongest.items(), key=lambda pair: -pair[1]))


def _by_group(given: Mapping[str, float], protected: Sequence[Protected]) -> dict[str, float]:
    """Return numbers by the full names of their groups; "" is everyone."""
    out: dict[str, float] = {}
    for text, value in given.items():
        name = ""
        if text:
            variable, code = find_group(protected, text)
            name = group_name(protected[variable].name, protected[variable].levels[code])
        if name in out:
            raise OptionError(f"The group '{name}' is given twice, once as '{text}'; give it once")
        out[name] = float(value)
    return out


def _about_output(predictions: Tensor, unit: str) -> list[str]:
    if unit != "value":
        return []
    return [
        f"The model's outputs, from {float(predictions.min()):.3g} to {float(predictions.max()):.3g}, are taken as "
        "values in their own units; if they are log-odds, say returns='logit' (--returns logit)."
    ]


def _checked_protected(protected: object) -> list[str]:
    texts = [protected] if isinstance(protected, str) else protected
    if not isinstance(texts, Sequence) or not all(isinstance(text, str) for text in texts):
        raise OptionError(
            f"protected is {protected!r}; expected a column name, a cut such as 'age<25', or a list of them"
        )
    return list(texts)


def _check_options(
    *,
    delta: object,
    deltas: Mapping[str, object] | None,
    limits: Mapping[str, object] | None,
    merge_rare: object,
    weights: object,
    output: object,
    returns: object,
    **whole_numbers: tuple[object, int],
) -> None:
    """Refuse what is no option before any work is done; `whole_numbers` are (value, least) by name."""
    for name, given in (("deltas", deltas), ("limits", limits)):
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(group, str) for group in given)):
            raise OptionError(f"{name} is {given!r}; expected numbers by group, such as {{'Female': 0.03}}")
    if weights is not None and not isinstance(weights, str):
        raise OptionError("weights must be the name of a column; add the weights to the table as one")
    for name, value in [("delta", delta), *((f"delta of '{group}'", own) for group, own in (deltas or {}).items())]:
        if value is not None and not (isinstance(value, Real) and 0 <= float(value) < math.inf):
            raise OptionError(f"{name} is {value!r}; expected a number of at least 0")
    for group, share in (limits or {}).items():
        if not (isinstance(share, Real) and 0 <= float(share) <= 1):
            raise OptionError(f"the limit of '{group or 'everyone'}' is {share!r}; expected a share from 0 to 1")
    if merge_rare is not None and not (isinstance(merge_rare, Real) and 0 < float(merge_rare) < 0.5):
        raise OptionError(f"merge_rare is {merge_rare!r}; expected a share of the people above 0 and below 0.5")
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

"""A fairness test that was fitted once: it scores any table of the same columns, with any model of them."""

from __future__ import annotations

import platform
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

from torch import Tensor

from fairfox.auxiliary.inference import infer_groups
from fairfox.auxiliary.model import FixedAuxiliary, centre_and_spread
from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.certainty import Rule, certainty
from fairfox.crossfit import DIRECT, TOTAL, Readings
from fairfox.data.columns import Table
from fairfox.data.dataset import Dataset, group_name
from fairfox.data.encode import Encoding
from fairfox.data.hashes import rows_sha256, tensors_sha256
from fairfox.data.table import load_table
from fairfox.doubts import find_doubts
from fairfox.errors import ColumnError, OptionError
from fairfox.extras import installed_versions
from fairfox.fairtests.gradient import SteppedTest
from fairfox.fairtests.protocol import CheckedTest, CounterfactualTest, JudgingTest, Measurement, MeasuringTest
from fairfox.fairtests.registry import about
from fairfox.fairtests.share import model_alignment
from fairfox.findings import find
from fairfox.models.description import Kind
from fairfox.models.output import Returns, Wanted
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import as_model, feature_names
from fairfox.result import AuditResult, Features
from fairfox.thresholds import default_delta, flag

Setting = bool | int | float | str
_ROUNDING = 1e-6  # of probabilities
_PACKAGES = ("fairfox", "torch", "numpy", "scikit-learn", "pyarrow", "narwhals")  # whose versions are told
_LOOKED_AT = 1000  # people on whom it is found out what the model returns


class Scored(NamedTuple):
    """A model and people as a fitted test sees them."""

    target: Model
    data: Dataset  # as they are
    people: Dataset  # with the most probable group of those whose own is unknown
    inferred: Tensor  # (N, V) bool: where it is
    predictions: Tensor  # (N,)


@dataclass(frozen=True, kw_only=True)
class FittedTest:
    """All that was learnt from a table to score others; `fairfox.storage` writes it to a file and reads it again.

    It holds no row of the fitting table, but the values of its columns one by one: their order is all that ranks need.
    `transport` pairs people with each other and holds their encoded rows.

    Example:
        >>> import pyarrow as pa
        >>> from fairfox.fitting import fit_test
        >>> people = pa.table({"sex": ["f", "m"] * 20, "income": [float(i) for i in range(40)]})
        >>> test = fit_test(people, protected="sex", refits=2)
        >>> len(test.score(lambda table: table["income"] / 40, people))
        40
    """

    name: str
    options: dict[str, Setting]
    seed: int
    version: str  # of fairfox
    table: str  # SHA-256 of the fitting rows as they were encoded
    encoding: Encoding  # without the table that it was fitted on
    known: Dataset  # the protected values and weights of the fitting rows, in order of the values, and no features
    auxiliary: FixedAuxiliary
    quality: tuple[AuxiliaryQuality, ...]  # on rows that the auxiliary was not trained on, one per protected variable
    proxy: tuple[dict[str, float], ...]
    metric: Tensor  # (D, D) the covariance of the fitting rows
    tests: dict[str, MeasuringTest]  # the one of this name, the direct and the total reading
    legitimate: tuple[str, ...] = ()
    intersections: bool = False
    hold_others: bool = False
    merge_rare: float | None = None
    batch_size: int = 4096

    @property
    def test(self) -> MeasuringTest:
        """The fairness test itself."""
        return self.tests[self.name]

    def measure(self, model: object, table: object, **options: Any) -> Measurement:
        """Return what the test measures on everyone in a table; options are those of `score` but for delta."""
        seen = self.seen(model, table, **options)
        return self.measured(self.name, seen)

    def score(self, model: object, table: object, *, delta: float | None = None, **options: Any) -> AuditResult:
        """Return what an audit with the fitting table as reference finds, without the features an effect goes through.

        Args:
            model: as for `fairfox.audit`; it takes the columns that the test was fitted on.
            table: the people. Where it lacks the protected columns, the most probable values take their place.
            delta: people with a score above it are flagged; by default the test's own.
            options: positive, output, returns and kind, as for `fairfox.audit`.
        """
        started = perf_counter()
        seen = self.seen(model, table, **options)
        what, unit = about(self.name, self.options), unit_of(seen.target)
        if delta is None:
            delta = default_delta(what.delta, seen.predictions, unit=unit) if what.of_prediction else what.delta
        runs = self.readings(seen)
        main, rule = runs.main, Rule(seed=self.seed)
        sure = certainty(main, delta, rule.fdr)
        return AuditResult(
            scores=main.score,
            signed=main.signed,
            interval=sure.interval,
            flags=flag(main.score, delta, abstained=main.abstained),
            confident_flags=sure.confident_flags,
            abstained=main.abstained,
            reasons=main.reasons,
            predictions=seen.predictions,
            worst=main.variable,
            findings=tuple(
                find(
                    runs,
                    v,
                    predictions=seen.predictions,
                    delta=delta,
                    spread=float(centre_and_spread(self.known.c[:, v], self.known.weights)[1]),
                    merged=dict(source.merged),
                    rule=rule,
                )
                for v, source in enumerate(self.encoding.sources)
            ),
            counterfactual=None,
            ids=seen.data.ids,
            features=Features(proxy=self._strongest(), effect=None),
            delta=delta,
            test=self.name,
            meaning=what.meaning,
            unit=f"{what.unit} ({unit})" if what.of_prediction else what.unit,
            warnings=tuple(find_doubts(seen.target, seen.data, self.known, seen.predictions, runs, self.name)),
            weights=seen.data.weights,
            checks=runs.checks[self.name],
            settings={
                **self._settings(seen, **options),
                "model": type(model).__name__,
                "refits": main.refits.shape[1],
                "fdr": rule.fdr,
                "decision_threshold": rule.decision_threshold,
                "seconds": round(perf_counter() - started, 3),
            },
            p_values=sure.p_values,
            listed=sure.listed,
        )

    def seen(
        self,
        model: object,
        table: object,
        *,
        positive: Any = None,
        output: Wanted = "probability",
        returns: Returns | None = None,
        kind: Kind | None = None,
    ) -> Scored:
        """Return a model and the people of a table as the test sees them."""
        frame = load_table(table)
        self.check_columns(model, output)
        encoding = self.encoding_of(frame)
        data = encoding.encode(frame)
        example = data.x[:_LOOKED_AT]
        target = as_model(
            model, encoding, kind=kind, positive=positive, output=output, returns=returns, example=example
        )
        predictions = predict(target, data.x, batch_size=self.batch_size)
        if returns is None and unit_of(target) == "probability":
            check_probabilities(predictions)
        return Scored(target, data, *infer_groups(data, self.auxiliary, self.known), predictions)

    def check_columns(self, model: object, output: Wanted) -> None:
        """Refuse a model that takes other columns than the test was fitted on."""
        own = feature_names(model, wanted=output)
        if own is not None and tuple(own) != self.encoding.columns:
            raise ColumnError(
                f"The model takes the columns {', '.join(own)}, and the test was fitted on "
                f"{', '.join(self.encoding.columns)}; fit it on the model's, in its order (columns=[...], --columns)"
            )

    def encoding_of(self, frame: Table) -> Encoding:
        """Return the encoding that gives models tables like the one that is scored."""
        self.check_has_columns(frame)
        return replace(self.encoding, fitted_on=_with_levels(frame.select(list(self.encoding.columns)), self.encoding))

    def check_has_columns(self, frame: Table) -> None:
        """Refuse a table that lacks a column of the model's."""
        there = set(frame.columns)
        lacking = [name for name in self.encoding.columns if name not in there]
        if lacking:
            more = f" (and {len(lacking) - 1} more)" if len(lacking) > 1 else ""
            raise ColumnError(
                f"The table has no column '{lacking[0]}'{more}, which the test was fitted on; "
                "give a table with the same columns"
            )

    def measured(self, name: str, seen: Scored, *, step: float | None = None) -> Measurement:
        """Return what one of the tests measures on people, by its name.

        `step` is that of finite differences, by default the one that suits the first of the people.
        """
        test = self.tests[name]
        if isinstance(test, CounterfactualTest):
            return test.measure(seen.target, seen.people, predictions=seen.predictions, rows=False)
        if isinstance(test, SteppedTest):
            return test.measure(seen.target, seen.people, step=step)
        return test.measure(seen.target, seen.people)

    def readings(self, seen: Scored) -> Readings:
        """Return all that is measured on people, and how far it can be trusted."""
        found = {name: self.measured(name, seen) for name in self.tests}
        main, test = found[self.name], self.test
        checks = test.checks() if isinstance(test, CheckedTest) else {}
        doubts = test.doubts(checks) if checks and isinstance(test, CheckedTest) else []
        said = checks | (test.verdict(main, seen.people) if isinstance(test, JudgingTest) else {})
        shares = model_alignment(
            seen.target, seen.people, self.auxiliary, self.metric, seed=self.seed, batch_size=self.batch_size
        )
        return Readings(
            main=main,
            direct=found[DIRECT],
            total=found[TOTAL],
            people=seen.people,
            inferred=seen.inferred,
            quality=self.quality,
            proxy=self.proxy,
            alignment=tuple(shares),
            checks={self.name: said},
            doubts=doubts,
        )

    def _strongest(self) -> dict[str, float]:
        """Return how strongly each feature gives any of the protected variables away, largest first."""
        strongest = {name: max(proxy[name] for proxy in self.proxy) for name in self.proxy[0]}
        return dict(sorted(strongest.items(), key=lambda pair: -pair[1]))

    def _settings(
        self,
        seen: Scored,
        *,
        positive: Any = None,
        output: Wanted = "probability",
        returns: Returns | None = None,
        kind: Kind | None = None,
    ) -> dict[str, Any]:
        """Return how the result came about, under the names that an audit with a reference has.

        Which columns were dropped or read in a way of their own when it was fitted is not kept: `columns` are left.
        """
        variables = self.known.protected
        named = [p for p in variables if p.reference is not None and not p.by_size]
        references = [group_name(p.name, p.levels[p.reference]) for p in named if p.reference is not None]
        every = any(p.kind == "categorical" and p.reference is None for p in variables)
        return {
            "seed": self.seed,
            "test": self.name,
            "options": {name: str(value) for name, value in self.options.items()} or None,
            "protected": [p.name for p in variables],
            "label": self.encoding.label,
            "reference": True,
            "rows": len(seen.data),
            "reference_rows": len(self.known),
            "reference_sha256": self.table,
            "rows_sha256": rows_sha256(seen.data),
            "predictions_sha256": tensors_sha256(seen.predictions),
            "columns": list(self.encoding.columns),
            "reference_group": references or None,
            **dict.fromkeys(("categorical", "continuous", "drop")),
            "contrasts": "all" if every else "largest",
            "intersections": self.intersections,
            "hold_others": self.hold_others,
            "legitimate": list(self.legitimate) or None,
            "merge_rare": self.merge_rare,
            "weights": self.encoding.weights,
            "max_flagged": None,
            "on": None,
            "matched_rows": None,
            "folds": None,  # nobody who is scored was fitted on
            "batch_size": self.batch_size,
            "output": output,
            "positive": None if positive is None else str(positive),
            "returns": returns,
            "kind": kind,
            "model_kind": _kind_of(seen.target),
            "differentiable": seen.target.differentiable,
            "null": None,
            "fitted_with": self.version,
            "versions": {"python": platform.python_version(), **installed_versions(*_PACKAGES)},
        }


def unit_of(target: Model) -> str:
    """Return what a model's number is: "probability", "logit" or "value"."""
    unit: str = getattr(getattr(target, "output", None), "unit", "value")
    return unit


def _kind_of(target: Model) -> str:
    """Return what a model receives: "table", "matrix" or "encoded"."""
    kind: str = getattr(target, "kind", "encoded" if getattr(target, "encoded", True) else "matrix")
    return kind


def _with_levels(frame: Table, encoding: Encoding) -> Table:
    """Return a table whose pandas categories have all levels of the fitting rows, since people may go to any."""
    if not frame.implementation.is_pandas():
        return frame
    native, wider = frame.to_native(), {}
    for f in encoding.features:
        if f.kind == "categorical" and hasattr(native[f.name], "cat"):
            known = set(native[f.name].cat.categories)
            new = [level for level in f.levels if level is not None and level not in known]
            wider[f.name] = native[f.name].cat.add_categories(new)
    return load_table(native.assign(**wider)) if wider else frame


def check_probabilities(predictions: Tensor) -> None:
    """Refuse predictions that are no probabilities where the first ones were taken for such."""
    if bool(((predictions < -_ROUNDING) | (predictions > 1 + _ROUNDING)).any()):
        raise OptionError(
            f"The first {_LOOKED_AT} predictions lie within 0 and 1 and others do not; say what the model returns: "
            "returns='probability', 'logit' or 'value' (--returns)"
        )

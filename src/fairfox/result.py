"""AuditResult: what an audit found, as its user reads it."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from fairfox.data.dataset import group_name
from fairfox.data.files import write_text, written_whole
from fairfox.data.table import verb
from fairfox.errors import DataError
from fairfox.findings import RATES, AuditRecord
from fairfox.report.people import comparators, own_sign, person_contributions, row_ids, rows_at
from fairfox.report.sentences import largest_groups, summary_lines, verdict_lines
from fairfox.report.text import amount, people, percent
from fairfox.statistics.verdict import Verdict

_MOST_GROUPS, _MOST_REASONS = 4, 3  # that are printed
_TURNED = {"effect": "effect", "lower": "upper", "upper": "lower"}  # of an effect with the other sign


@dataclass(frozen=True, repr=False)
class Person:
    """One person of an audit. Numbers are None where the person was not judged or nothing is known."""

    id: Any
    group: str
    prediction: float
    effect: float | None
    lower: float | None  # interval of the effect
    upper: float | None
    flagged: bool
    confident: bool
    significant: bool
    towards: str | None  # the group they are compared with
    features: dict[str, float]  # what each adds to the effect, the largest first; empty where the test explains none
    counterfactual: dict[str, Any]  # their values as a member of that group; empty where the test has none
    comparators: dict[Any, float]  # the nearest real people of that group to these values: predictions by id
    abstained_because: str | None

    def __repr__(self) -> str:
        if self.abstained_because is not None:
            return f"Person {self.id} ({self.group}), not judged: {self.abstained_because}"
        marks = [name for name in ("flagged", "confident", "significant") if getattr(self, name)]
        compared = "" if self.towards is None else f" as {self.towards}"
        lines = [f"Person {self.id} ({self.group}): {', '.join(marks) or 'not flagged'}"]
        lines.append(f"  prediction {self.prediction:.4g}, effect{compared} {_signed(self.effect)}")
        if self.lower is not None:
            lines[-1] += f" (interval {_signed(self.lower)} to {_signed(self.upper)})"
        through = [f"{name} {_signed(value)}" for name, value in list(self.features.items())[:_MOST_REASONS]]
        lines += [f"  mostly through {', '.join(through)}"] if through else []
        alike = ", ".join(f"{id} (prediction {prediction:.4g})" for id, prediction in self.comparators.items())
        return "\n".join([*lines, *([f"  most alike there: {alike}"] if alike else [])])


class AuditResult:
    """What an audit found: the verdict, three tables, arrays with a value per person, and files.

    Tables are of the kind that was audited: pandas, polars or Arrow. Of a file or an array they are pandas where that
    is installed, and Arrow otherwise. Arrays are numpy, in the order of the table. People who could not be judged have
    NaN for a number and False for a mark.

    Args:
        record: all that was found, as the reports use it.
        table: the audited table; only its kind is kept.

    Example:
        >>> import fairfox, pyarrow as pa
        >>> people = pa.table({"sex": ["f", "m"] * 40, "income": [float(i + 30 * (i % 2)) for i in range(80)]})
        >>> result = fairfox.audit(lambda rows: rows["income"] / 200, people, protected="sex")
        >>> result.verdict.passed
        False
        >>> result.person(0).features
        {'income': 0.161}
    """

    def __init__(self, record: AuditRecord, table: object = None) -> None:
        self.record = record
        frame = nw.from_native(table, eager_only=True, pass_through=True)
        self._kind: Any = frame.implementation if isinstance(frame, nw.DataFrame) else "pandas"

    def __len__(self) -> int:
        return len(self.record)

    def __repr__(self) -> str:
        record, tally = self.record, self.record.tally
        counts = {"judged": tally.judged, "flagged": tally.flagged, "significant": record.listed}
        if len(record.findings) > 1:  # whose list of the significant is another one than the verdict's
            counts = {"judged": tally.judged, "flagged for any variable": tally.flagged}
        numbers = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count is not None)
        verdict = f"Cannot tell. {self.verdict.reason}" if record.verdict is None else verdict_lines(record)[0]
        lines = [verdict, f"{people(tally.people)}: {numbers} (test {self.test}, delta {self.delta:g})"]
        for group in largest_groups(record.groups, _MOST_GROUPS):
            mean = amount(group.mean_effect, record.unit, sign=True)
            effect = "" if group.mean_effect is None else f"mean effect {mean}, "
            lines.append(f"  {group.name}: {people(group.people)}, {effect}{percent(group.share_flagged)} flagged")
        more = len(record.groups) - _MOST_GROUPS
        lines += [f"  and {more} more {verb(more, 'group', 'groups')} (result.groups)"] if more > 0 else []
        lines += [f"Warnings: {len(self.warnings)} (result.warnings)"] if self.warnings else []
        return "\n".join([*lines, 'More: result.people, result.features, result.to_html("report.html")'])

    @property
    def verdict(self) -> Verdict:
        """The verdict on the model: `passed` (True, False; None: cannot tell), `reason`, and the numbers behind it."""
        if self.record.verdict is not None:
            return self.record.verdict
        why = f"The test {self.test} gives no intervals here; use the test rank, or at least 2 refits."
        return Verdict("cannot tell", why, self.record.limit, self.record.judged, 0, 0, 1.0, 1.0)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdict for each protected variable, by its name; empty where the test gives no intervals."""
        return {each.name: each.verdict for each in self.record.findings if each.verdict is not None}

    @property
    def test(self) -> str:
        """The name of the fairness test."""
        return self.record.test

    @property
    def delta(self) -> float:
        """The smallest effect that counts."""
        return self.record.delta

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before the result is used, a sentence each."""
        return self.record.warnings

    @property
    def settings(self) -> dict[str, Any]:
        """Every option, the seed, versions and hashes: what it takes to repeat the audit."""
        return self.record.settings

    @cached_property
    def people(self) -> Any:
        """A table with a row per person.

        `row_id` is the id, or the row number from 0, not the index of a data frame. `effect` is the change of
        `prediction` as a member of the other `group`; of a number, with a higher one. `lower` to `upper` is its
        interval. `score` is what is compared with delta: |effect| for most tests. `flagged`: score > delta.
        `confident`: the whole interval is beyond delta. `significant`: on the false-discovery list; the verdict counts
        these. `reasons` are the features that add most to the effect. `abstained` people are not judged, for the reason
        in `abstained_because`. The Parquet file has more columns.
        """
        return self._table(self._people)

    @cached_property
    def groups(self) -> Any:
        """A table with a row per group: people, mean prediction, mean effect, shares of flagged people, and decisions.

        `impact_ratio` is the `selection_rate` over that of the variable's group with the highest.
        """
        groups = self.record.groups
        names = ("people", "mean_prediction", "mean_effect", "share_flagged", "share_confident", "inferred", *RATES)
        columns = {name: [getattr(group, name) for group in groups] for name in ("variable", "level", *names)}
        return self._table(pa.table({"group": [group.name for group in groups], **columns}))

    @cached_property
    def features(self) -> Any:
        """A table with a row per feature, the largest first.

        `mean_absolute` is the mean |contribution| to the effect, with its `standard_error`; `proxy` says how strongly
        the feature gives the protected variable away.
        """
        proxy, effect = self.record.features.proxy, self.record.features.effect
        means, errors = ({}, {}) if effect is None else (effect.total, effect.error)
        names = list(dict.fromkeys([*means, *proxy]))
        columns = {"mean_absolute": means, "standard_error": errors, "proxy": proxy}
        numbers = {key: pa.array([of.get(name) for name in names], pa.float64()) for key, of in columns.items()}
        return self._table(pa.table({"feature": pa.array(names, pa.string()), **numbers}))

    @property
    def counterfactual(self) -> Any:
        """A table of everyone's values as a member of the other group; None where the test has no such rows."""
        return self.record.counterfactual_table

    @property
    def predictions(self) -> np.ndarray:
        """Everyone's prediction (N,)."""
        return self.record.predictions.numpy(force=True)

    @property
    def effect(self) -> np.ndarray:
        """How the prediction would change as a member of the other group (N,)."""
        return self._numbers(self.record.effect)

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper end of everyone's effect (N, 2)."""
        return self._numbers(self.record.interval, 2)

    @property
    def flagged(self) -> np.ndarray:
        """Whose score is above delta (N,)."""
        return self._marks(self.record.flagged)

    @property
    def significant(self) -> np.ndarray:
        """Who is on the list of people over delta with the given false discovery rate (N,)."""
        return self._marks(self.record.significant)

    def person(self, id: object) -> Person:
        """Return what was found about one person: by the id column, or by row number from 0 without one."""
        rows = [n for n, own in enumerate(self._people["row_id"].to_pylist()) if own == id]
        if len(rows) != 1:
            who = f"{len(rows)} people have" if rows else "No person has"
            kind = "row number" if self.record.ids is None else "id"
            raise DataError(f"{who} the {kind} {id!r}; the column row_id of result.people has everyone's")
        row, sign = self._people.slice(rows[0], 1).to_pylist()[0], own_sign(self.record, rows[0])
        if sign < 0 and not row["abstained"]:
            row |= {name: None if row[other] is None else -row[other] for name, other in _TURNED.items()}
        table = self.record.counterfactual_table
        after = {} if table is None or row["abstained"] else rows_at(self.record, table, rows).to_pylist()[0]
        (alike,) = comparators(self.record, rows)
        ids = self._people["row_id"].take(pa.array(alike, pa.int64())).to_pylist()
        return Person(
            id=row["row_id"],
            towards=self.record.towards[rows[0]],
            features={name: sign * own for name, own in person_contributions(self.record, rows[0], ask=True)},
            counterfactual=after,
            comparators=dict(zip(ids, self.predictions[alike].tolist(), strict=True)),
            **{f.name: row[f.name] for f in fields(Person) if f.name in row},
        )

    @cached_property
    def charts(self) -> Any:
        """The charts of the report as Altair charts: `result.charts.scores`, `.groups`, `.features` and others."""
        from fairfox.report.charts import Charts

        return Charts(self.record)

    def summary(self) -> str:
        """Return the audit in a dozen lines of plain text, and some for each further protected variable."""
        return "\n".join(summary_lines(self.record))

    def to_html(self, path: str | Path | None = None, *, rows: object = None, alternatives: object = None) -> str:
        """Return the report, one HTML page that needs no other file, and write it to `path` when given.

        `rows` is the audited table (one row per person, in the same order): with it the page also shows the values of
        flagged people. `alternatives` is what `fairfox.alternatives` found: the page shows it above the sign-off.
        """
        from fairfox.report.files import read_alternatives
        from fairfox.report.html import render_report

        tried = None if alternatives is None else read_alternatives(alternatives, self.settings)
        return write_text(render_report(replace(self.record, alternatives=tried), rows=rows), path)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the audit without its people as strict JSON, and write it to `path` when given.

        Numbers that are not finite become null; `format` grows when a field changes its meaning.
        """
        from fairfox.report.files import summary_json

        return write_text(summary_json(self.record), path)

    def to_parquet(self, path: str | Path) -> None:
        """Write a row per person, with every column: those of each protected variable and contrast too.

        Numbers and marks of people who were not judged are null.
        """
        from fairfox.report.files import scores_table

        with written_whole(Path(path)) as temporary:
            pq.write_table(scores_table(self.record), temporary)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the counts, the groups."""
        from fairfox.report.html import result_card

        return result_card(self.record)

    @cached_property
    def _people(self) -> pa.Table:
        record, (lower, upper) = self.record, self.interval.T
        own = [[group_name(f.name, level) for level in f.group] for f in record.findings if not f.parts]
        columns = {
            "row_id": row_ids(record),
            "group": [", ".join(each) for each in zip(*own, strict=True)],
            "prediction": self.predictions,
            "effect": self.effect,
            "lower": lower,
            "upper": upper,
            "score": self._numbers(record.scores),
            "flagged": self.flagged,
            "confident": self._marks(record.confident),
            "significant": self.significant,
            "reasons": pa.array([self._reasons(n) for n in range(len(self))], pa.string()),
            "abstained": record.abstained.numpy(force=True),
            "abstained_because": pa.array(record.reasons, pa.string()),
        }
        numbers = ("effect", "lower", "upper", "score")
        return pa.table({n: pa.array(c, from_pandas=True) if n in numbers else c for n, c in columns.items()})

    def _reasons(self, position: int) -> str | None:
        """Return the features that add most to a person's effect; None where nothing is known."""
        largest = person_contributions(self.record, position)[:_MOST_REASONS]
        return ", ".join(f"{name} {amount(v, self.record.effect_unit, sign=True)}" for name, v in largest) or None

    def _numbers(self, values: Tensor | None, *more: int) -> np.ndarray:
        """Return numbers (N, ...), NaN where a person was not judged or there are none."""
        out = np.full((len(self), *more), np.nan) if values is None else values.numpy(force=True).astype(np.float64)
        out[self.record.abstained.numpy(force=True)] = np.nan
        return out

    def _marks(self, values: Tensor | None) -> np.ndarray:
        """Return marks (N,), False where a person was not judged or there are none."""
        judged = ~self.record.abstained.numpy(force=True)
        return np.zeros(len(self), dtype=bool) if values is None else values.numpy(force=True) & judged

    def _table(self, table: pa.Table) -> Any:
        """Return a table in the kind of the audited one."""
        return nw.from_arrow(table, backend=self._kind).to_native()


def _signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.3g}"

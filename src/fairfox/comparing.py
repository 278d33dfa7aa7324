"""compare(model_a, model_b, table, ...): which of two models treats the same people less unequally?"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.auditing import audit
from fairfox.crossfit import Progress
from fairfox.data.files import written_whole
from fairfox.earlier import Side
from fairfox.errors import OptionError
from fairfox.fairtests.registry import UNFITTED
from fairfox.report.pair import changed_people, pair_view
from fairfox.report.summary import strict_json
from fairfox.report.text import amount, percent
from fairfox.result import AuditResult
from fairfox.verdicts.comparing import Pair, Seen, compare_people

SCHEMA_VERSION = 1
_NO_INTERVAL = dict.fromkeys(("value", "error", "lower", "upper"))
_NOT_HERE = ("limits", "certify", "abstain", "progress")  # options of an audit that say nothing about a comparison


@dataclass(frozen=True)
class Compared:
    """Two models on the same people: their audits, and what stands between them."""

    a: AuditResult
    b: AuditResult
    pair: Pair
    names: tuple[str, str]  # of the models

    @property
    def word(self) -> str:
        """ "A is fairer", "B is fairer" or "cannot tell"."""
        return self.pair.word

    @property
    def why(self) -> str:
        """The reason, one sentence."""
        return self.pair.why

    def summary(self) -> str:
        """Return the comparison in some lines of plain text."""
        pair, (a, b), share = self.pair, self.names, self.pair.share_difference
        points = f"{100 * (pair.shares[1] - pair.shares[0]):+.1f} points"
        if share is not None:
            points += f" ({100 * share.lower:+.1f} to {100 * share.upper:+.1f})"
        over = f"Over delta = {amount(self.a.delta, self.a.unit)}" if by_one_delta(self.a) else "Flagged"
        lines = [
            f"fairfox compare: A is {a}, B is {b}; test '{self.a.test}', protected: {', '.join(self.a.variables)}",
            f"Verdict: {pair.word}. {pair.why}",
            f"{over}: {percent(pair.shares[0])} of the people with A, {percent(pair.shares[1])} "
            f"with B; a difference of {points}.",
            f"B treats {percent(pair.less)} of the people less unequally than A, {percent(pair.more)} more unequally.",
        ]
        for variable, own in self.a.alignment_share.items():
            other = self.b.alignment_share[variable]
            lines.append(f"Alignment share with {variable}: {percent(own)} with A, {percent(other)} with B.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        from fairfox.report.snippet import compared_card

        return compared_card(self)

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the comparison without its people as JSON, and write it to `path` when given."""
        text = strict_json(self._fields())
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return text

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the page that shows both audits, which needs nothing beside it, and write it to `path` when given."""
        from fairfox.report.pair_files import render_pair  # charts and pages take a while to import

        page = render_pair(self._view())
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(page, encoding="utf-8")
        return page

    def people_table(self) -> pa.Table:
        """Return one row per person: both scores, signs and flags, and B's score less A's; null where not judged."""
        tables = {"a": self.a.scores_table(), "b": self.b.scores_table()}
        both = _judged(self.a, self.b)
        apart = self.b.scores.numpy(force=True).astype(np.float64) - self.a.scores.numpy(force=True)
        columns = {"row_id": tables["a"]["row_id"], "difference": pa.array(apart, mask=~both)}
        for name in ("score", "signed", "flag"):
            columns |= {f"{name}_{side}": table[name] for side, table in tables.items()}
        return pa.table(columns)

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write report.html, report.json, summary.json, summary.md, junit.xml and people.parquet to a folder, all or
        none, and return their paths."""
        from fairfox.report.outputs import write_files
        from fairfox.report.pair_files import pair_files

        people = BytesIO()
        pq.write_table(self.people_table(), people)
        contents = {**pair_files(self._view(), self._fields()), "people.parquet": people.getvalue()}
        return write_files(Path(folder), contents)

    def _view(self) -> dict[str, Any]:
        both = _judged(self.a, self.b)
        weights = None if self.a.weights is None else self.a.weights.numpy(force=True).astype(np.float64)[both]
        one, two = (
            Side(name, json.loads(result.to_json()), result.scores.numpy(force=True).astype(np.float64)[both], weights)
            for name, result in zip(self.names, (self.a, self.b), strict=True)
        )
        more = self.summary().splitlines()[2:4]
        changed = changed_people(self.people_table(), self.a.unit)
        return pair_view("compare", self.pair, (one, two), more=more, people=changed)

    def _fields(self) -> dict[str, Any]:
        pair = self.pair
        sides = zip("ab", (self.a, self.b), self.names, pair.means, pair.shares, strict=True)
        return {
            "kind": "compare",
            "schema_version": SCHEMA_VERSION,
            "word": pair.word,
            "why": pair.why,
            "test": self.a.test,
            "unit": self.a.unit,
            "delta": self.a.delta,
            "decision_threshold": self.a.decision_threshold,
            "protected": list(self.a.variables),
            "people": pair.people,
            "models": {
                side: {
                    "name": name,
                    "mean_effect": mean,
                    "share_over_delta": share,
                    "alignment_share": result.alignment_share,
                    "alignment_error": result.alignment_error,
                    "columns": result.settings["columns"],
                    "warnings": list(result.warnings),
                }
                for side, result, name, mean, share in sides
            },
            "difference": asdict(pair.difference),
            "share_difference": _NO_INTERVAL | {"value": pair.shares[1] - pair.shares[0]}
            if pair.share_difference is None
            else asdict(pair.share_difference),
            "share_less_unequal_with_b": pair.less,
            "share_more_unequal_with_b": pair.more,
            "settings": {name: self.a.settings[name] for name in ("seed", "refits", "folds", "rows", "versions")},
        }


def compare(
    model_a: object,
    model_b: object,
    table: object,
    *,
    protected: str | list[str],
    only_a: Mapping[str, Any] | None = None,
    only_b: Mapping[str, Any] | None = None,
    names: tuple[str, str] | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Compared:
    """Return which of two models treats the same people less unequally because of the protected variables.

    Both are audited with the same question, seed and folds, so that maps and auxiliaries are the same where the models
    take the same columns. People who are judged with both count.

    Args:
        model_a: the first model, as `fairfox.audit` takes it.
        model_b: the second one.
        table: the people.
        protected: as for `fairfox.audit`, as are all further `options`.
        only_a: options that hold for the first model alone, such as {"columns": ["income", "age"]}.
        only_b: the same for the second.
        names: what the models are called; by default their classes.
        progress: called with what is being done and the fraction done.
    """
    for name in _NOT_HERE:
        if name in {**options, **(only_a or {}), **(only_b or {})}:
            raise OptionError(f"{name} is no option of a comparison; use fairfox.audit for it")
    say = progress or (lambda text, fraction: None)
    asked = {"protected": protected, **options}
    a = audit(model_a, table, **{**asked, **(only_a or {})}, progress=lambda text, done: say(f"A: {text}", done / 2))
    again = _for_b({**asked, **(only_b or {})}, a.delta)
    b = audit(model_b, table, **again, progress=lambda text, done: say(f"B: {text}", 0.5 + done / 2))
    _check_alike(a, b)
    return Compared(a, b, _pair(a, b), names or (a.settings["model"], b.settings["model"]))


def _for_b(options: dict[str, Any], delta: float) -> dict[str, Any]:
    """Return the options of B's audit: with the delta of A, as one of its own would be another yardstick.

    A decision threshold takes the place of any delta. Shuffled values that gave A its delta are not needed again.
    """
    if options.get("decision_threshold") is not None:
        return options
    if options.get("delta_from_null"):
        options = {name: given for name, given in options.items() if name not in ("delta_from_null", "null")}
    return options if options.get("delta") is not None else {**options, "delta": delta}


def by_one_delta(result: AuditResult) -> bool:
    """Return whether one delta for all flags people: no decision threshold does, and no group has its own."""
    return result.decision_threshold is None and not result.deltas


def _check_alike(a: AuditResult, b: AuditResult) -> None:
    told = ("test", "unit", "decision_threshold", "deltas", "variables")
    for what in told if a.decision_threshold is not None else (*told, "delta"):  # a cut takes the place of delta
        one, two = getattr(a, what), getattr(b, what)
        if one != two:
            called = what.replace("_", " ")
            raise OptionError(
                f"The {called} of the audit of A is {one} and that of B {two}; compare models by the same question, "
                "with returns= or output= where they answer in different units"
            )


def _pair(a: AuditResult, b: AuditResult) -> Pair:
    both = _judged(a, b)
    weights = None if a.weights is None else a.weights.numpy(force=True).astype(np.float64)[both]
    return compare_people(
        _seen(a, both),
        _seen(b, both),
        delta=a.delta if by_one_delta(a) else None,
        folds=a.settings["folds"],
        weights=weights,
        seed=a.settings["seed"],
        learnt=a.test not in UNFITTED,
        unit=a.unit,
    )


def _judged(a: AuditResult, b: AuditResult) -> np.ndarray:
    return ~(a.abstained | b.abstained).numpy(force=True)


def _seen(result: AuditResult, rows: np.ndarray) -> Seen:
    assert result.reliability is not None  # every audit has it
    return Seen(
        refits=result.reliability.refits.numpy(force=True).astype(np.float64)[rows],
        scores=result.scores.numpy(force=True).astype(np.float64)[rows],
        flags=result.flags.numpy(force=True)[rows],
    )

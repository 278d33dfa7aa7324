"""compare(a, b, ...): two models on the same people, or two stored audits; plan(...): how many people are needed."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from fairfox.choices.kinds import Number
from fairfox.choices.tests import UNFITTED
from fairfox.data.files import write_text
from fairfox.errors import ColumnError, ModelError, OptionError, ShapeError
from fairfox.fairtests.fitted import Progress
from fairfox.findings import AuditRecord
from fairfox.options import EVERYONE, AuditOptions, further_options
from fairfox.pipeline import run_audit
from fairfox.report.files import StoredAudit, read_audit, scores_table, stored_audit, summary_json, write_files
from fairfox.report.html import make_card
from fairfox.report.pair import changed_people, mean_of, pair_fields, pair_files, pair_view, render_pair, share_sentence
from fairfox.report.text import amount, percent, strict_json
from fairfox.result import AuditResult
from fairfox.statistics.paired import (
    LEVEL,
    NOT_WORSE,
    UNKNOWN,
    WORSE,
    Pair,
    Plan,
    Scores,
    Side,
    compare_scores,
    people_needed,
    same_audit,
)
from fairfox.statistics.performance import METRICS, Performance

_MOST = 0.8  # of the people of the larger audit must be in both, for the two to be compared person by person
_HASHES = ("rows_sha256", "predictions_sha256")  # settings that say whether people and predictions are the same
_SMALL = 0.1  # of delta: a rise of the mean score that does not count


@dataclass(frozen=True)
class Compared:
    """Two audits and their difference: of two models, or of two points in time."""

    a: AuditResult | None  # of two models; None where two audits were given
    b: AuditResult | None
    pair: Pair
    sides: tuple[Side, Side]  # both as their files have them

    @property
    def names(self) -> tuple[str, str]:
        """The names of the models or the audits."""
        return self.sides[0].name, self.sides[1].name

    @property
    def word(self) -> str:
        """ "A is fairer" or "B is fairer" of models, "worse" or "not worse" of audits, or "cannot tell"."""
        return self.pair.word

    @property
    def reason(self) -> str:
        """The reason, one sentence."""
        return self.pair.reason

    def summary(self) -> str:
        """Return the comparison as a few lines of plain text."""
        pair, (one, two) = self.pair, self.names
        fields = self.sides[0].summary
        variables = ", ".join(each["name"] for each in fields["variables"])
        about = f"test '{fields['test']}', protected: {variables}"
        verdict = f"Verdict: {pair.word}. {pair.reason}"
        if self.a is None or self.b is None:
            return f"fairfox compare: before is {one}, now is {two}; {about}\n{verdict}\n{share_sentence(pair)}"
        assert pair.less is not None
        a, b = self.a.record, self.b.record
        over = f"Over delta = {amount(a.delta, a.unit)}" if by_one_delta(a) else "Flagged"
        lines = [
            f"fairfox compare: A is {one}, B is {two}; {about}",
            verdict,
            share_sentence(pair, over),
            f"With B the effect is smaller for {percent(pair.less)} of the people and larger for {percent(pair.more)}.",
            *self._performance_lines(),
        ]
        for variable, own in a.alignment_share.items():
            what = f"Alignment share (of the model's local variation, the share along {variable})"
            lines.append(f"{what}: {percent(own)} with A, {percent(b.alignment_share[variable])} with B.")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        title, _, *lines = self.summary().splitlines()
        return make_card(title, self.word, self.reason, lines=lines, hint='compared.to_html("report.html")')

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the comparison without its people as JSON, and write it to `path` when given."""
        return write_text(strict_json(pair_fields(self.pair, self.sides)), path)

    def to_html(self, path: str | Path | None = None) -> str:
        """Return the self-contained page that shows both audits, and write it to `path` when given."""
        return write_text(render_pair(self._view()), path)

    def people_table(self) -> pa.Table:
        """Return one row per person: both scores, effects and flags, and B's score minus A's; null where not judged."""
        if self.a is None or self.b is None:
            raise OptionError("Two stored audits may be of different people; a table of people needs two models")
        a, b = self.a.record, self.b.record
        tables = {"a": scores_table(a), "b": scores_table(b)}
        apart = b.scores.numpy(force=True).astype(np.float64) - a.scores.numpy(force=True)
        columns = {"row_id": tables["a"]["row_id"], "difference": pa.array(apart, mask=~_judged(a, b))}
        for name in ("score", "effect", "flagged"):
            columns |= {f"{name}_{side}": table[name] for side, table in tables.items()}
        return pa.table(columns)

    def write(self, folder: str | Path) -> tuple[Path, ...]:
        """Write report.html, report.json, summary.json, summary.md, junit.xml and, of two models, people.parquet to a
        folder, all or none, and return their paths."""
        contents = pair_files(self._view(), pair_fields(self.pair, self.sides))
        if self.a is not None:
            people = BytesIO()
            pq.write_table(self.people_table(), people)
            contents["people.parquet"] = people.getvalue()
        return write_files(Path(folder), contents)

    def _performance_lines(self) -> list[str]:
        """Return a line for each metric of both models, with the interval of its difference on the same people."""
        a, b = (() if each is None else each.record.performance for each in (self.a, self.b))
        return [performance_sentence(one, two) for one, two in zip(a, b, strict=False) if one.metric == two.metric]

    def _view(self) -> dict[str, Any]:
        more = self.summary().splitlines()[2 : 4 + len(self._performance_lines())]
        people = None if self.a is None else changed_people(self.people_table(), self.pair.unit)
        return pair_view(self.pair, self.sides, more=more, people=people)


def compare(
    a: object,
    b: object,
    table: object | None = None,
    *,
    protected: str | Sequence[str] | None = None,
    only_a: Mapping[str, Any] | None = None,
    only_b: Mapping[str, Any] | None = None,
    names: tuple[str, str] | None = None,
    margin: float | None = None,
    progress: Progress | None = None,
    **arguments: Any,
) -> Compared:
    """Return which of two models is fairer to the same people, or whether a later audit is worse.

    With a table, `a` and `b` are models. Both are audited with the same options, seed and folds, so maps and
    auxiliaries are the same where the models take the same columns; people who are judged with both count.

    Without a table, `a` and `b` are stored audits with the same options, the older one first. Where both have an id
    column and share most people, each person is compared with themselves; otherwise the audits are two samples of
    people.

    Args:
        a: the first model, as `fairfox.audit` takes it; or a folder that `fairfox audit` wrote, or its result.
        b: the second.
        table: the people, for two models.
        protected: as for `fairfox.audit`.
        only_a: options for the first model only, such as {"columns": ["income", "age"]}.
        only_b: the same for the second.
        names: of the models or audits; by default the models' classes and the audits' folders.
        margin: for stored audits, a rise of the mean score that does not count; by default a tenth of delta.
        progress: called with what is being done and the fraction done.
        arguments: any other argument of `fairfox.audit`, also `options`.
    """
    if table is None:
        given = {"protected": protected, "only_a": only_a, "only_b": only_b, **arguments}
        lost = next((name for name, value in given.items() if value is not None), None)
        if lost is not None:
            raise OptionError(
                f"{lost} is an option for new audits, which need a table; "
                "give the table of people too, or leave the option out to compare two stored audits"
            )
        return _compare_audits(a, b, margin=margin, names=names)
    if margin is not None:
        raise OptionError("margin is an option for two stored audits; leave it out to compare two models on a table")
    if protected is None:
        raise OptionError("Comparing two models needs a protected column; name it with protected= (--protected)")
    reference = arguments.pop("reference", None)
    common = {"protected": protected, **further_options(arguments.pop("options", None)), **arguments}
    first, second = (AuditOptions.of({**common, **(own or {})}) for own in (only_a, only_b))
    return _compare_models(a, b, table, first, second, reference=reference, names=names, progress=progress)


def _compare_models(
    model_a: object,
    model_b: object,
    table: object,
    first: AuditOptions,
    second: AuditOptions,
    *,
    reference: object | None = None,
    names: tuple[str, str] | None = None,
    progress: Progress | None = None,
) -> Compared:
    """Return two models compared on the same people, given the options of each."""
    for options in (first, second):
        options.without(("max_flagged", "certify"), "a comparison")
    say = progress or (lambda text, fraction: None)

    def audited(side: str, model: object, options: AuditOptions, start: float) -> AuditRecord:
        def tell(text: str, done: float) -> None:
            say(f"{side}: {text}", start + done / 2)

        try:
            return run_audit(model, table, options, reference=reference, progress=tell)
        except (ModelError, ShapeError, ColumnError) as error:
            raise type(error)(f"Model {side}: {error}") from error

    a = audited("A", model_a, first, 0.0)
    if second.decision_threshold is None and second.delta_for_all is None:  # a delta of its own would be another scale
        deltas = {**second.delta_by_group, EVERYONE: a.delta}
        second = replace(second, delta=deltas, delta_from_null=False, null=0 if second.delta_from_null else second.null)
    b = audited("B", model_b, second, 0.5)
    checked = ["test", "unit", "decision_threshold", "deltas", "variables"]
    for what in checked if a.decision_threshold is not None else [*checked, "delta"]:  # a cut replaces delta
        one, two = getattr(a, what), getattr(b, what)
        if one != two:
            raise OptionError(
                f"The {what.replace('_', ' ')} is {one} for A and {two} for B; compare models with the same options, "
                "and set returns= or output= where they return different units"
            )
    both = _judged(a, b)
    weights = None if a.weights is None else a.weights.numpy(force=True).astype(np.float64)[both]
    about: dict[str, Any] = {"weights": weights, "unit": a.unit, "seed": a.settings["seed"]}
    pair = compare_scores(_scores_of(a, both), _scores_of(b, both), **about)
    pair = replace(pair, reason=pair_sentence(pair))
    names = names or (a.settings["model"], b.settings["model"])
    one, two = (
        Side(name, json.loads(summary_json(each)), each.scores.numpy(force=True).astype(np.float64)[both], weights)
        for name, each in zip(names, (a, b), strict=True)
    )
    return Compared(AuditResult(a, table), AuditResult(b, table), pair, (one, two))


def performance_sentence(a: Performance, b: Performance) -> str:
    """Return how well each of two models tells the label of the same people, by one metric."""
    apart = b.minus(a)
    return (
        f"{METRICS[a.metric]}: {a.value:.3f} with A, {b.value:.3f} with B; a difference of {apart.value:+.3f} "
        f"({apart.lower:+.3f} to {apart.upper:+.3f})."
    )


def by_one_delta(result: AuditRecord) -> bool:
    """Return whether people are flagged by one delta: no decision threshold, and no deltas of groups."""
    return result.decision_threshold is None and not result.deltas


def _judged(a: AuditRecord, b: AuditRecord) -> np.ndarray:
    return ~(a.abstained | b.abstained).numpy(force=True)


def _scores_of(result: AuditRecord, rows: np.ndarray) -> Scores:
    assert result.refits is not None  # every audit has them
    each = (result.refits, result.scores)
    refits, scores = (values.numpy(force=True).astype(np.float64)[rows] for values in each)
    about: dict[str, Any] = {"delta": result.delta, "folds": result.settings["folds"]}
    about |= {"by_delta": by_one_delta(result), "learnt": result.test not in UNFITTED}
    return Scores.of_refits(refits, scores, result.flagged.numpy(force=True)[rows], **about)


def pair_sentence(pair: Pair) -> str:
    """Return why two models or audits compare as they do, in one sentence."""
    d, many = pair.difference, pair.people
    one, two = (amount(mean, pair.unit) for mean in pair.means)
    interval = " to ".join(amount(value, pair.unit, sign=True) for value in (d.lower, d.upper))
    if pair.itself or (pair.margin is None and not (pair.less or pair.more)):
        same = "Both are the same audit" if pair.itself else "Both models give each person the same score"
        return f"{same}: the {mean_of(pair.unit)} of {many[0]:,} people is {one}, and there is no difference."
    once = "one refit cannot show how certain the maps are; set refits=5 (--refits 5)"
    if pair.margin is None:
        start = f"On the same {many[0]:,} people the {mean_of(pair.unit)} is {one} with A and {two} with B"
        if not pair.maps_known:
            return f"{start}, but {once}."
        may_be = ", so it may be zero" if pair.word == UNKNOWN else ""
        return f"{start}; the 95 % interval of the difference is {interval}{may_be}."
    who = f"the same {many[0]:,} people" if pair.paired else f"{many[0]:,} and {many[1]:,} people"
    moved = "went" if not pair.maps_known or d.lower <= 0 <= d.upper else "rose" if d.lower > 0 else "fell"
    start, margin = f"The {mean_of(pair.unit)} of {who} {moved} from {one} to {two}", amount(pair.margin, pair.unit)
    if not pair.maps_known:
        return f"{start}, but {once} in both audits."
    ends = {
        WORSE: f"the probability of such a rise by chance is {pair.p_value:.2g}.",
        NOT_WORSE: f"it has not risen by more than the margin of {margin}.",
        UNKNOWN: f"it may have risen by more than the margin of {margin}, or not at all.",
    }
    return f"{start} (95 % interval of the difference: {interval}); {ends[pair.word]}"


def _compare_audits(before: object, now: object, *, margin: float | None, names: tuple[str, str] | None) -> Compared:
    one, two = _audit_of(before), _audit_of(now)
    for what, own in one.options.items():
        if own != two.options[what]:
            also = "; where predictions are values, give both the same delta" * (what == "delta")
            raise OptionError(
                f"The {what} is {_in_words(own)} in {one.name} and {_in_words(two.options[what])} in {two.name}; "
                f"compare audits with the same options{also}"
            )
    allowed = Number(0).required("margin", _SMALL * one.people.delta if margin is None else margin)
    about: dict[str, Any] = {"margin": allowed, "unit": one.options["unit"]}
    hashes = [[each.summary["settings"].get(name) for name in _HASHES] for each in (one, two)]
    first, second = (np.stack([each.people.scores, each.people.flagged]) for each in (one, two))
    a, b, positions = one.people, two.people, _same_people(one.ids, two.ids)
    if None not in hashes[0] and hashes[0] == hashes[1] and np.array_equal(first, second):
        pair = same_audit(a, **about)
    elif positions is None:
        mine, others = (set(each.summary["settings"].get("columns") or ()) for each in (one, two))
        if 2 * len(mine & others) < min(len(mine), len(others)):
            raise OptionError(
                f"The columns of {one.name} and {two.name} mostly differ; compare audits of similar tables"
            )
        pair = compare_scores(a, b, paired=False, **about)
    else:
        a, b = (
            replace(people, scores=people.scores[rows], errors=people.errors[rows], flagged=people.flagged[rows])
            for people, rows in zip((a, b), positions, strict=True)
        )
        pair = compare_scores(a, b, **about)
    names = names or (one.name.strip("'"), two.name.strip("'"))
    sides = Side(names[0], one.summary, one.people.scores), Side(names[1], two.summary, two.people.scores)
    return Compared(None, None, replace(pair, reason=pair_sentence(pair)), sides)


def _audit_of(given: object) -> StoredAudit:
    """Return an audit from the folder that `fairfox audit` wrote, or from its result."""
    if isinstance(given, AuditResult):
        fields, named = json.loads(given.to_json()), given.record.ids is not None
        return stored_audit("the result", fields, scores_table(given.record), named=named)
    if isinstance(given, str | Path):
        return read_audit(given)
    raise OptionError(
        f"A {type(given).__name__} is not a stored audit; give two folders that `fairfox audit` wrote or two results "
        "of fairfox.audit, or the table of people as well to compare two models"
    )


def _in_words(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}: {own}" for name, own in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "none" if value is None else f"{value}"


def _same_people(first: tuple[Any, ...] | None, second: tuple[Any, ...] | None) -> tuple[list[int], list[int]] | None:
    """Return where the people of both are; None where these are few, or where an id is not one person's."""
    if first is None or second is None or None in first or None in second:
        return None
    position = {one: k for k, one in enumerate(second)}
    if len(position) < len(second) or len(set(first)) < len(first):
        return None
    shared = [(k, position[one]) for k, one in enumerate(first) if one in position]
    if len(shared) < _MOST * max(len(first), len(second)):
        return None
    return [k for k, _ in shared], [k for _, k in shared]


def plan(
    pilot: AuditResult | str | Path | None = None,
    *,
    effect: float | None = None,
    limit: float | None = None,
    share: float | None = None,
    max_flagged: float | None = None,
    spread: float | None = None,
    power: float = 0.8,
    level: float = LEVEL,
) -> Plan:
    """Return how many people are needed to detect an effect of a given size.

    To detect means that a one-sided test finds the mean |effect| above `limit`, or with `max_flagged` the share of
    people over delta above that. The spread comes from a pilot: an audit of a few hundred similar people with the same
    model.

    Args:
        pilot: the folder of the pilot's audit, or its result.
        effect: the true mean |effect| to detect; by default the pilot's.
        limit: what it must lie above; by default the pilot's delta.
        share: the true share of people over delta to detect; by default the pilot's. Needs `max_flagged`.
        max_flagged: the share that may be over delta.
        spread: the standard error times the root of the number of people, where there is no pilot.
        power: the probability of detecting the effect.
        level: how often an effect of exactly the limit is detected.
    """
    by_share = max_flagged is not None or share is not None
    if by_share and (max_flagged is None or effect is not None or limit is not None):
        raise OptionError("Give share and max_flagged to plan a share, or effect and limit to plan a mean")
    if (pilot is None) == (spread is None):
        raise OptionError("Give either a pilot (the folder of an audit) or the spread of its results (--spread)")
    size, allowed = (share, max_flagged) if by_share else (effect, limit)
    if pilot is not None:
        stored = _audit_of(pilot)
        people = stored.people
        if not people.maps_known:
            raise OptionError(f"One refit in {stored.name} does not show how results vary; give a pilot with refits=5")
        if by_share and not people.by_delta:
            raise OptionError(
                f"{stored.name} flags people by a decision threshold or by deltas of groups, but shares are planned "
                "for one delta; give a pilot with one delta, or plan a mean with effect and limit (--effect, --limit)"
            )
        if size is not None and size > 1 and not by_share and "probability" in stored.options["unit"]:
            raise OptionError(f"A probability cannot change by {size:g}; give an effect of at most 1 (100 points)")
        size = size if size is not None else float((people.flagged if by_share else people.scores).mean())
        allowed = people.delta if allowed is None else allowed
        spread = people.spread(by_share=by_share)
    if size is None or allowed is None or spread is None:
        raise OptionError("Without a pilot, both effect (--effect) and limit (--limit) are needed")
    if math.isnan(spread):
        raise OptionError("The pilot judged only one person; give one with at least a few dozen")
    needed = people_needed(size, allowed, spread, wanted=power, level=level)
    return Plan("share over delta" if by_share else "mean |effect|", size, allowed, spread, level, power, needed)

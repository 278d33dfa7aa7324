"""Everything that fairfox says about an audit in sentences: text, page, markdown, JUnit, card and pytest share them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.choices.tests import EFFECT, TOTAL
from fairfox.data.table import verb
from fairfox.findings import AuditRecord, Finding, Group
from fairfox.options import AuditOptions
from fairfox.report.text import amount, cell, ended, heading_unit, joined, number, people, percent
from fairfox.statistics.groups import VARIABLE
from fairfox.statistics.verdict import tipping_sentence

CaseOutcome = Literal["passed", "failure", "skipped"]
OUTCOMES: dict[str, CaseOutcome] = {  # of the words of verdicts
    **dict.fromkeys(("fails", "A is fairer", "worse"), "failure"),
    **dict.fromkeys(("passes", "B is fairer", "not worse"), "passed"),
    "cannot tell": "skipped",
}
CHECKS = {  # numbers by which tests judge their own fits and the model as a whole
    "ks": "distance of mapped people's features from real ones (KS)",
    "ks_worst": "the largest in one direction",
    "ks_unmapped": "the same before mapping",
    "ks_chance": "the same by chance",
    "mse": "how badly mapped people fit together (MSE)",
    "mse_real": "the same of real people",
    "mean_cost": "mean cost of a pair",
    "people_paired": "share of people who were paired",
    "spread_kept": "share of the variance kept",
    "bound": "lower bound of the mean growth of the loss",
    "p_value": "p-value of a tolerated mean growth",
    "mean": "mean growth of the loss",
    "non_finite": "people whose loss is 0 or infinite",
}
MOST_GROUPS = 6  # that a sentence names
_MOST_FEATURES = 3


def over_words(unit: str, delta: float, deltas: Mapping[str, float], options: AuditOptions) -> str:
    """Return what is true of people who count against a model, to go after "their": "prediction shifts by more ..."."""
    limit = "delta" if deltas else amount(delta, unit)
    given = f", given {joined(options.given, 'and')}" if options.given else ""
    if options.decision_threshold is not None:
        return f"decision at the threshold {number(options.decision_threshold)} would change with {VARIABLE}{given}"
    if unit.partition(" (")[0] == EFFECT:
        return f"prediction shifts by more than {limit} with {VARIABLE}{given}"
    return f"score for {VARIABLE} is above {limit}{given}"


def summary_lines(result: AuditRecord) -> list[str]:
    """Return the audit in a dozen lines, and some for each further protected variable."""
    return [title_line(result), *verdict_lines(result), *(f"Warning: {warning}" for warning in result.warnings)]


def title_line(result: AuditRecord) -> str:
    """Return who was audited, by what and for what."""
    variables = joined(result.variables, "and")
    return f"fairfox audit of {people(result.tally.people)} for {variables}, test {result.test}"


def verdict_lines(result: AuditRecord) -> list[str]:
    """Return the verdict, whom it concerns and which way, how sure it is, through what, and what to do next."""
    lines = [headline(result)]
    if result.judged:
        for finding in result.findings:
            lines += variable_lines(result, finding)
        lines += [*certainty_lines(result), " ".join(count_lines(result)), *extra_lines(result), *through_lines(result)]
        for finding in result.findings:
            lines += [*flip_lines(result, finding), *held_equal_lines(result, finding)]
    return [ended(line) for line in (*lines, *not_judged_lines(result), *next_lines(result))]


def extra_lines(result: AuditRecord) -> list[str]:
    """Return what only some audits find: by chance, proved, left out, of a sample."""
    return [*_chance_lines(result), *certificate_lines(result), *stream_lines(result)]


def headline(result: AuditRecord) -> str:
    """Return the verdict in one sentence; without intervals there is none, and that is said."""
    if not result.judged:
        return "CANNOT TELL: Nobody could be judged."
    if result.verdict is None:
        weighted = "" if result.weights is None else " by weight"
        share = f"{result.tally.flagged:,} of {people(result.judged)} ({percent(result.share_flagged)}{weighted})"
        why = "one refit" if result.settings.get("refits") == 1 else f"the test {result.test}"
        return f"NO VERDICT: {why} gives no intervals. {share} {verb(result.tally.flagged)} flagged."
    return result.verdict.headline


def variable_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return which way each group of a protected variable is affected, and what is special about the variable.

    Where there are several variables, each has its own verdict.
    """
    lines = direction_lines(result, finding)
    if finding.verdict is not None and finding.verdict is not result.verdict and len(result.findings) > 1:
        lines = [f"For {finding.name}: {finding.verdict.headline}", *lines]
    return [*lines, *(f"{finding.name}: {note}" for note in variable_notes(result, finding))]


def direction_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return each group's mean effect, and what its sign means, in a sentence; nothing for tests without a sign."""
    known = [group for group in finding.groups if group.mean_effect is not None and math.isfinite(group.mean_effect)]
    if not known or not result.is_effect:
        return []
    each = [f"{group.name} {amount(group.mean_effect, result.unit, sign=True)}" for group in largest_groups(known)]
    each += [f"{more} more {verb(more, 'group', 'groups')}"] if (more := len(known) - len(each)) else []
    where = "as members of the other group"
    if finding.kind == "continuous":
        up = f"{finding.name} + "
        step = next((f" ({words.removeprefix(up)})" for words in finding.contrasts if words.startswith(up)), "")
        where = f"with {finding.name} one standard deviation{step} higher"
    elif len(finding.levels) > 2:
        where = f"as members of {compared_group(finding)}"
    return [f"Mean change of the prediction {where}: {joined(each, 'and')}"]


def largest_groups(groups: Sequence[Group], most: int = MOST_GROUPS) -> list[Group]:
    """Return the largest groups, in the order they come in."""
    return sorted(sorted(groups, key=lambda group: -group.people)[:most], key=groups.index)


def compared_group(finding: Finding) -> str:
    """Return the group that people of more than two are compared with, in words."""
    reference = finding.reference is not None
    return f"the group {'they are compared with' if reference else 'that changes their prediction most'}"


def certainty_lines(result: AuditRecord) -> list[str]:
    """Return how large the effect is with an interval, down to where the verdict holds, and what it does not cover."""
    verdict = result.verdict
    if verdict is None:
        return []
    lines, mean, unit = [], verdict.mean, result.unit
    if mean is not None and result.is_effect:
        of = f" of {verdict.variable}" if len(result.findings) > 1 else ""
        interval = f"{cell(mean.lower, unit)} to {cell(mean.upper, unit)}{' points' if heading_unit(unit) else ''}"
        lines.append(f"Mean size of the effect{of}: {amount(mean.value, unit)} (95 % interval {interval}).")
    lines += [tips] if (tips := tipping_sentence(verdict)) else []
    return [*lines, *(line for f in result.findings if f.verdict is not None for line in common_cause_lines(f))]


def common_cause_lines(finding: Finding) -> list[str]:
    """Return what a common cause outside the table would have to do; nothing for tests that keep no ranks."""
    cause = finding.common_cause
    if finding.verdict is None or not finding.verdict.curve:
        return []
    if cause is None:
        return [f"Not covered: a cause of both {finding.name} and the features that is missing from the table."]
    what = f"the mean effect on {cause.group}"
    if cause.shift is None:
        shift = f"shifts {cause.feature}, the number that matters most, by 3 standard deviations"
        return [f"Not even a common cause outside the table that {shift} would explain {what}."]
    deviations = f"{cause.shift:.2g} standard deviation{'' if f'{cause.shift:.2g}' == '1' else 's'}"
    return [
        f"A common cause outside the table would explain {what} only if it shifted {cause.feature} by {deviations} "
        "between the groups."
    ]


def meanings(result: AuditRecord) -> dict[str, str]:
    """Return what the three words for people mean in this audit, in a few words each."""
    limit = "the delta of their group" if result.deltas else amount(result.delta, result.unit)
    flagged = f"{'|effect|' if result.is_effect else 'score'} > {limit}"
    confident = f"whole interval beyond {limit}"
    if result.decision_threshold is not None:
        flagged, confident = "the decision would change", "the decision would change over the whole interval"
    verdict = result.verdict
    rate = f"false discovery rate: {100 * result.settings.get('fdr', 0.1):.3g} %"
    rate += ", at persistence 1" if carried_words(result) else ""
    if verdict is not None and (verdict.variable,) != result.variables:
        rate = f"{verdict.variable}, {rate}"
    if len(result.findings) > 1:
        flagged, confident = f"{flagged}, for any variable", f"{confident}, for any variable"
    return {"significant": rate, "flagged": flagged, "confident": f"{confident}{carried_words(result)}"}


def counts(result: AuditRecord) -> dict[str, int]:
    """Return how many people are significant, which is what the verdict counts, flagged and confident."""
    verdict, tally = result.verdict, result.tally
    listed = None if verdict is None else verdict.significant
    each = {"significant": listed, "flagged": tally.flagged, "confident": tally.confident}
    return {word: count for word, count in each.items() if count is not None}


def count_lines(result: AuditRecord) -> list[str]:
    """Return how many people are significant, flagged and confident, each with what it means."""
    means = meanings(result)
    return [f"{word.capitalize()}: {count:,} ({means[word]})." for word, count in counts(result).items()]


def carried_words(result: AuditRecord) -> str:
    """Return for which persistence intervals allow, where they do."""
    if result.verdict is None or not result.verdict.curve or result.settings["persistence"] == 1:
        return ""
    return f", at persistence {result.settings['persistence']:g}"


def stream_lines(result: AuditRecord) -> list[str]:
    """Return what is said of a sample, and how exact the list is; nothing where everyone is in memory."""
    if result.streamed is None:
        return []
    lines, threshold = [], result.streamed.threshold
    if threshold is not None and threshold.listed:
        more = f"; by exact p-values at most {threshold.at_most:,}" if threshold.at_most > threshold.listed else ""
        lines.append(f"Significant are those with a p_value of at most {threshold.p:.3g}{more}.")
    if len(result) < result.tally.people:
        who = f"{len(result):,} of {people(result.tally.people)}"
        lines.append(
            "Verdict, counts and the groups' effects are about everyone; all else, such as selection rates, rests on "
            f"{who}, drawn at random."
        )
    return lines


def not_judged_lines(result: AuditRecord) -> list[str]:
    """Return how many people are not judged, a line for each reason."""
    return [f"{people(count)} not judged: {reason}" for reason, count in result.abstained_by_reason.items()]


def _chance_lines(result: AuditRecord) -> list[str]:
    """Return what shuffled protected values give, in a sentence; nothing where that was not asked for."""
    if result.null is None:
        return []
    shares = [
        f"alignment share of {finding.name} {percent(float(result.null.alignment[:, v].mean()))} instead of "
        f"{percent(finding.alignment_share)}, p-value {number(result.null.p_alignment(v, finding.alignment_share))}"
        for v, finding in enumerate(result.findings)
    ]
    mean, most = amount(result.null.mean_score, result.unit), amount(result.null.delta, result.unit)
    start = f"With shuffled protected values the mean score is {mean}, and 95 % stay below {most}"
    return [f"{start}; {'; '.join(shares)}."]


def certificate_lines(result: AuditRecord) -> list[str]:
    """Return what is proved about the path to the other group, a sentence each; nothing where not asked for."""
    proved = result.certificates
    if proved is None:
        return []
    without = [f"{people(count)} without a certificate: {why}." for why, count in result.uncertified_by_reason.items()]
    certified, worse = int(proved.certified.sum()), int(proved.worse_inside.sum())
    if not certified:
        return without
    limit = "delta" if result.deltas and not proved.total else amount(proved.delta, certificate_unit(result))
    start = "In the total reading, for" if proved.total else "For"
    what = "the prediction, times the alignment share," if result.test.endswith("/a") else "the prediction"
    return [
        f"{start} {int(proved.within.sum()):,} of {people(result.judged)} no point on the path to "
        f"their counterfactual row changes {what} by more than {limit}: proved, not sampled.",
        f"For {worse:,} of the {people(certified)} with a certificate a point on the path is worse than its end "
        f"by more than {limit}.",
        *without,
    ]


def certificate_unit(result: AuditRecord) -> str:
    """Return the unit of what certificates bound: the prediction in the total reading, else the score."""
    return result.effect_unit if result.certificates is not None and result.certificates.total else result.unit


def next_lines(result: AuditRecord) -> list[str]:
    """Return what to do next, in a sentence; nothing after a PASS, nor a FAIL of a repair or by a protected number."""
    verdict = result.verdict
    if verdict is not None and verdict.word == "cannot tell" and result.judged and verdict.allowed > 0:
        plan = " (fairfox plan says how many)" if result.tally.mean_score > result.delta else ""
        return [f"Next: audit more people{plan}, or see what the warnings and the map check say"]
    fails = verdict is not None and verdict.word == "fails"
    if not fails or result.settings.get("repaired") or all(f.kind == "continuous" for f in result.findings):
        return []
    return [
        "Next: unless a feature is a valid reason (--given), fairfox repair lowers the effect without training the "
        "model again, and fairfox alternatives finds what else does, and what it costs"
    ]


def because(finding: Finding, towards: str | None) -> str:
    """Return one contrast of a variable in words: "race (towards White)", "age + 13.6"."""
    if towards is None or towards == finding.name:
        return finding.name
    if finding.kind == "continuous":
        return towards
    # derivatives also lead away from the own class, and say so themselves
    return f"{finding.name} ({f'towards {towards}' if towards in finding.levels else towards})"


def variable_notes(result: AuditRecord, finding: Finding) -> list[str]:
    """Return what is special about one protected variable: inferred groups, merged classes, own deltas."""
    notes = []
    tally = finding.tally()
    for words, count in (("inferred", tally.inferred), ("unknown", tally.unknown)):
        notes += [f"own group {words} for {people(count)}"] if count else []
    if finding.parts:
        notes.append(f"crosses {joined(finding.parts, 'and')}")
    if finding.reference is not None:
        second = f" (and {finding.reference} with {finding.second})" if finding.second is not None else " only"
        notes.append(f"compared with {finding.reference}{second}")
    notes += [f"'{name}' combines {joined(rare, 'and')}" for name, rare in finding.merged.items()]
    notes += [
        f"delta of {group.name} is {amount(result.deltas[group.name], result.unit)}"
        for group in finding.groups
        if group.name in result.deltas
    ]
    return notes


def signed_word(result: AuditRecord) -> str:
    """Return what a signed value of this test is called."""
    return "effect" if result.is_effect else "signed score"


def flip_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return how many people's decision depends on their group, in a sentence; nothing where nobody decides."""
    decision = f"the decision '{yes}'" if (yes := result.settings.get("audited_class")) else "a positive decision"
    each = [
        f"{len(flips.negative):,} of {flips.people:,} people in the group {name} would get {decision} and "
        f"{len(flips.positive):,} would lose it"
        for name, flips in result.flips(finding).items()
    ]
    where = "the other group" if len(finding.levels) == 2 else "another group"
    judged = f"judged by their mean prediction as members of {where}"
    return [f"At the cut-off {number(result.cut)}, {judged}, {'; '.join(each)}"] if each else []


def proxy_lines(finding: Finding) -> list[str]:
    """Return which features are proxies of a protected variable, in one sentence where there are any."""
    named = [f"{name} {number(value)}" for name, value in list(finding.proxy.items())[:5]]
    return [f"Proxies of {finding.name} (mean gradient of the auxiliary model): {', '.join(named)}"] if named else []


def quality_line(quality: AuxiliaryQuality) -> str:
    """Return how well the auxiliary predicts its protected variable, in one sentence."""
    metric = {"auc": "AUC", "r2": "R2"}.get(quality.metric, quality.metric)
    return (
        f"{quality.variable} can be predicted from the model's columns with {metric} {number(quality.value)} "
        f"(chance {number(quality.chance)}) on {quality.rows:,} held-out rows"
    )


def alignment_line(finding: Finding) -> str:
    """Return the alignment share of a protected variable, in one sentence."""
    error_words = "" if math.isnan(finding.alignment_error) else f" (± {percent(finding.alignment_error)})"
    return (
        f"Alignment share of {finding.name}: {percent(finding.alignment_share)}{error_words} of the "
        f"model's local variation is along {finding.name}"
    )


def reading_words(result: AuditRecord) -> dict[str, str]:
    """Return what the effect of each reading is of."""
    total = "every feature moves to the value of the same rank in the other group"
    if {finding.kind for finding in result.findings} == {"continuous"}:
        total = "every feature moves to the value of the same rank one standard deviation up or down"
    words = {"total": total}
    if result.direct is not None:
        words = {"direct": "the smallest edit of a person that changes the protected variable", **words}
    if any(finding.same_outcome is not None for finding in result.findings):
        words["same outcome"] = f"as the total effect, among people with the same {result.settings.get('label')}"
    return words


def gap_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return the gap between groups taken apart along the graph, a sentence for each pair of groups."""

    def size(value: float) -> str:
        return amount(value, result.effect_unit, sign=True)

    return [
        f"From {finding.name}={part.group} to {part.towards} the mean prediction changes by {size(part.gap)}: "
        f"{size(part.direct)} by {finding.name} itself, {size(-part.indirect)} through what it acts on in the graph, "
        f"and {size(-part.spurious)} spurious (the groups differ in other causes)"
        for part in finding.gap_parts
    ]


def held_equal_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return how the effects with given columns held equal, and with the label, compare with the total effect."""
    label, given = result.settings.get("label"), list(result.settings.get("given") or [])
    lines, verdict = [], "the total effect" if result.test == "rank" else f"the score of {result.test}"
    if result.test == "rank" and given == [label]:
        verdict = "the effect at the same outcome"
    elif result.test == "rank" and given and finding.effect is not None:
        verdict, columns = "", joined(given, "and")
        compared = _compared(result, finding, finding.effect)
        lines.append(f"Given {columns}, the effect of {finding.name} is {compared}. The verdict uses this")
    if finding.same_outcome is not None:
        by = "" if result.settings.get("test", TOTAL) == TOTAL else f" by {TOTAL}"
        line = f"At the same outcome ({label}) the effect{by} of {finding.name} is "
        line += _compared(result, finding, finding.same_outcome)
        line += f". The verdict uses {verdict}" if verdict else ""
        lines.append(f"{line}. A bias in the label itself does not show there")
    return lines


def _compared(result: AuditRecord, finding: Finding, effect: Tensor) -> str:
    """Return how large an effect (N,) is beside the total one, over the people who have both."""
    known = ~(effect + finding.total).isnan()
    size, total = (
        finding.reading(each.where(known, math.nan), result.weights).mean_absolute for each in (effect, finding.total)
    )
    words, total_words = (amount(value, result.effect_unit) for value in (size, total))
    count = int(known.sum())
    total_words += f" for the same {people(count)}" if count < int((~finding.total.isnan()).sum()) else ""
    if cell(size, result.effect_unit) == cell(total, result.effect_unit):
        return f"about as large as in total, {total_words}"
    more = percent(abs(1 - size / total)) if total > 0 else "much"
    return f"{words} on average, {more} {'more' if size > total else 'less'} than in total ({total_words})"


def through_lines(result: AuditRecord) -> list[str]:
    """Return through which features the effect goes, in one sentence where it was explained."""
    effect = result.features.effect
    if effect is None:
        return []
    largest = [pair for pair in effect.total.items() if pair[1] > 0][:_MOST_FEATURES]
    named = [f"{name} ({amount(value, result.effect_unit)})" for name, value in largest]
    return [f"Mostly through {joined(named, 'and')}: mean size over {people(effect.people)}"] if named else []


def check_lines(result: AuditRecord) -> list[str]:
    """Return the numbers by which tests judge their fits and the model as a whole, a line for each test with any."""
    checks = {result.test: result.checks} if result.comparison is None else result.comparison.checks
    return [
        f"{test} reports: {'; '.join(f'{CHECKS.get(name, name)} {number(value)}' for name, value in own.items())}"
        for test, own in checks.items()
        if own
    ]


def map_check_names(result: AuditRecord) -> list[str]:
    """Return who each map check is about: a group, and towards whom where it is compared with several."""
    times = Counter(check.group for check in result.map_checks)
    return [
        check.group if times[check.group] == 1 else f"{check.group} towards {check.towards}"
        for check in result.map_checks
    ]


def map_lines(result: AuditRecord) -> list[str]:
    """Return how much of each group's gap the map accounts for, a line for each group with a gap worth the name."""
    unit = result.effect_unit
    points = heading_unit(unit).strip(" ()")
    given = result.settings.get("given")
    stays = f"; given {joined(given, 'and')}, part of the gap is meant to stay" if given else ""
    lines = [
        f"{name}: the map accounts for {100 * check.accounted:z.0f} % of the gap "
        f"({f'{cell(check.effect, unit)} of {cell(check.gap, unit)} {points}'.rstrip()}{stays})."
        for name, check in zip(map_check_names(result), result.map_checks, strict=True)
        if check.accounted is not None
    ]
    if result.still:
        among = f" among people with the same {joined(given, 'and')}" if given else ""
        what = "it does" if len(result.still) == 1 else "they do"
        lines.append(
            f"The groups do not differ significantly in {joined(result.still, 'and')}{among}: {what} not move."
        )
    return lines


def comparison_notes(result: AuditRecord) -> list[str]:
    """Return how long the auxiliaries of several tests took to train, and which tests were not run and why."""
    if result.comparison is None:
        return []
    start = f"Training the auxiliaries that move and faux share took {result.comparison.training_seconds:.1f} s more"
    return [start, *(f"{name} was not run: {why}" for name, why in result.comparison.skipped.items())]

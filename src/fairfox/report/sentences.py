"""Everything that fairfox says about an audit in sentences: text, page, markdown, JUnit, card and pytest share them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Literal

from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.data.table import verb
from fairfox.findings import AuditRecord, Finding, Group
from fairfox.options import SAMPLED
from fairfox.report.text import amount, cell, heading_unit, joined, number, people, percent, unit_words
from fairfox.statistics.diagnostics import DISAGREE
from fairfox.statistics.verdict import tipping_sentence

CaseOutcome = Literal["passed", "failure", "skipped"]
OUTCOMES: dict[str, CaseOutcome] = {  # of the words of verdicts
    **dict.fromkeys(("fails", "A is fairer", "worse"), "failure"),
    **dict.fromkeys(("passes", "B is fairer", "not worse"), "passed"),
    "cannot tell": "skipped",
}
MODEL_WORDS = {
    "fails": "The model fails",
    "passes": "The model passes",
    "cannot tell": "Whether the model passes is open",
}
CHECKS = {  # numbers by which tests judge their own fits and the model as a whole
    "ks": "distance of mapped people's features from real ones (KS)",
    "ks_worst": "the largest in one direction",
    "ks_unmapped": "the same before mapping",
    "ks_chance": "the same by chance",
    "mse": "how badly mapped people fit together (MSE)",
    "mse_real": "the same of real people",
    "mean_cost": "mean cost of a pair",
    "people_paired": "people who were paired",
    "spread_kept": "share of the variance kept",
    "explained": "share of the columns' variance that the graph explains",
    "unevenness": "how much more one group's noise spreads than another's",
    "bound": "lower bound of the mean growth of the loss",
    "p_value": "p-value of a tolerated mean growth",
    "mean": "mean growth of the loss",
    "non_finite": "people whose loss is 0 or infinite",
}
_MOST_DELTAS = 3  # of single groups that the verdict names


def summary_lines(result: AuditRecord) -> list[str]:
    """Return the audit in a dozen lines, and some for each further protected variable."""
    lines = [title_line(result), *verdict_lines(result)]
    lines += [*not_judged_lines(result), score_line(result), *check_lines(result), *effect_lines(result)]
    for finding in result.findings:
        lines += variable_lines(result, finding)
        lines += [_group_line(result, group) for group in finding.groups]
        lines += proxy_lines(finding)
        lines += reading_lines(result, finding)
        lines += flip_lines(result, finding)
        lines += [quality_line(finding.quality), alignment_line(finding)]
    lines += [*map_lines(result), *comparison_lines(result)]
    return lines + [f"Warning: {warning}" for warning in result.warnings]


def title_line(result: AuditRecord) -> str:
    """Return who was audited, by what and for what."""
    who, variables = people(result.tally.people), ", ".join(result.variables)
    return f"fairfox audit of {who}, test '{result.test}', protected: {variables}"


def verdict_lines(result: AuditRecord) -> list[str]:
    """Return the verdict, how many people are flagged, how certainly and why, what is proved, who is left out."""
    if not result.judged:
        return ["Nobody could be judged."]
    lines = [*_model_lines(result), _flagged_line(result), _confident_line(result), *_significant_lines(result)]
    lines += [*_size_lines(result), *_mostly_lines(result), *_chance_lines(result)]
    lines += [*certificate_lines(result), *reliability_lines(result), *next_lines(result)]
    return [*lines, *stream_lines(result)]


def stream_lines(result: AuditRecord) -> list[str]:
    """Return what is said of a sample, and how exact the list is; nothing where everyone is in memory."""
    if result.streamed is None:
        return []
    lines, threshold = [], result.streamed.threshold
    if threshold is not None and threshold.listed:
        more = f", and at most {threshold.at_most:,} by exact p-values" if threshold.at_most > threshold.listed else ""
        lines.append(f"Significant are those with a p_value of at most {threshold.p:.3g}{more}.")
    if len(result) < result.tally.people:
        who = f"{len(result):,} of {people(result.tally.people)}"
        lines.append(f"Verdict, counts and groups are about everyone; all else is read off {who}, drawn at random.")
    return lines


def not_judged_lines(result: AuditRecord) -> list[str]:
    """Return how many people are not judged, a line for each reason."""
    return [f"{people(count)} not judged: {reason}" for reason, count in result.abstained_by_reason.items()]


def _model_lines(result: AuditRecord) -> list[str]:
    """Return the verdict on the model and why, in a sentence; nothing without intervals."""
    verdict, several = result.verdict, len(result.findings)
    if verdict is None:
        return []
    worst = f", judged by {verdict.variable}, the worst of {several} protected variables" if several > 1 else ""
    why = verdict.reason
    if result.is_effect and not result.deltas:
        why = why.replace("over delta", f"treated differently by more than {amount(result.delta, result.unit)}")
    alone = f"By {verdict.variable} alone: " if several > 1 else ""
    tips = tipping_sentence(verdict)
    causes = [line for f in result.findings if f.verdict is not None for line in common_cause_lines(f)]
    return [f"{MODEL_WORDS[verdict.word]}{worst}. {alone}{why}", *([tips] if tips else []), *causes]


def common_cause_lines(finding: Finding) -> list[str]:
    """Return what a common cause outside the table would have to do; nothing for tests that keep no ranks."""
    cause = finding.common_cause
    if finding.verdict is None or not finding.verdict.curve:
        return []
    start = f"A common cause of {finding.name} and the features that is not in the table is not covered"
    if cause is None:
        return [f"{start}."]
    start = f"{start}: "
    if cause.shift is None:
        most = f"not even one that shifts {cause.feature} by 3 standard deviations"
        return [f"{start}{most} would explain the mean effect on {cause.group}."]
    return [
        f"{start}to explain the mean effect on {cause.group} it would have to shift {cause.feature} by "
        f"{cause.shift:.2g} standard deviation{'' if f'{cause.shift:.2g}' == '1' else 's'} between the groups."
    ]


def _flagged_line(result: AuditRecord) -> str:
    """Return how many people are flagged, and what that means."""
    flagged, weighted = result.tally.flagged, "" if result.weights is None else " by weight"
    line = f"{flagged:,} of {people(result.judged)} ({percent(result.share_flagged)}{weighted}) "
    line += f"{verb(flagged)} flagged"
    if len(result.findings) > 1 and result.tells_variables_apart:
        line += f" because of at least one of {len(result.findings)} variables"
    return f"{line}: {_flag_meaning(result)}."


def _flag_meaning(result: AuditRecord) -> str:
    """Return what is true of people who are flagged."""
    limit = _limit(result)
    if not result.is_effect:
        what = result.unit.removesuffix(" (probability)").replace(" (", ", ").removesuffix(")")  # the limit has points
        return f"the score ({what}) is above {limit}"
    change = f"the prediction would change by more than {limit}"
    if result.decision_threshold is not None:
        change = f"their decision, yes from a prediction of {number(result.decision_threshold)} on, would change"
    if result.test == "unawareness":
        return f"{change} if only the protected column named another group"
    kept = result.settings.get("given")
    return f"{change} {_if_they(result.findings)}" + (f", with the same {joined(kept, 'and')}" if kept else "")


def _limit(result: AuditRecord) -> str:
    """Return delta, and those of single groups where they are few."""
    limit = amount(result.delta, result.unit)
    if not result.deltas:
        return limit
    own = [f"{name}: {amount(delta, result.unit)}" for name, delta in result.deltas.items()]
    return f"{limit} ({', '.join(own) if len(own) <= _MOST_DELTAS else 'some groups have their own delta'})"


def beyond(result: AuditRecord) -> str:
    """Return what an interval has to lie beyond, so that a flag is confident."""
    return "delta" if result.decision_threshold is None else "what would change the decision"


def _confident_line(result: AuditRecord) -> str:
    if result.tally.confident is None:
        return "There is no interval, so nobody is flagged confidently: one refit, or a test that learns nothing."
    limit = beyond(result) if result.deltas or result.decision_threshold is not None else _limit(result)
    line = f"{result.tally.confident:,} of them confidently: the whole interval lies beyond {limit}"
    return f"{line}{_carried(result)}."


def _carried(result: AuditRecord) -> str:
    """Return for what intervals and the list of people allow, where they do."""
    if result.verdict is None or not result.verdict.curve or result.settings["persistence"] == 1:
        return ""
    return f", also if people's ranks carry over only with a correlation of {result.settings['persistence']:g}"


def _significant_lines(result: AuditRecord) -> list[str]:
    count = result.listed
    if count is None:
        return []
    rate = f"{100 * result.settings['fdr']:.3g} %"
    if not count:
        also = _carried(result).replace(", also if", " if")
        return [f"Nobody is significant at a false discovery rate of {rate}{also}."]
    wrong = f"at most {rate} of such a list are expected to be wrong"
    return [f"{count:,} {verb(count)} significant{_carried(result)}: {wrong}."]


def _size_lines(result: AuditRecord) -> list[str]:
    """Return how much the prediction changes and through which features, in a sentence; nothing for other scores."""
    mean = None if result.verdict is None else result.verdict.mean
    if result.verdict is None or mean is None or not result.is_effect:
        return []
    unit, because_of = result.unit, f" because of {result.verdict.variable}" if len(result.findings) > 1 else ""
    line = f"On average the prediction would change by {amount(mean.value, unit)}{because_of}, in either direction "
    line += f"(95 % interval {amount(mean.lower, unit)} to {amount(mean.upper, unit)})"
    effect = result.features.effect
    through = [] if effect is None else [name for name, value in list(effect.total.items())[:3] if value > 0]
    return [f"{line}, mostly through {joined(through, 'and')}." if through else f"{line}."]


def _mostly_lines(result: AuditRecord) -> list[str]:
    """Return which variable, and which contrast of it, most flags are due to; nothing where there is no choice."""
    flagged = result.flagged.numpy(force=True).nonzero()[0]
    if result.two_groups or not result.tells_variables_apart or not len(flagged) or result.streamed is not None:
        return []
    worst, towards = result.worst.numpy(force=True)[flagged], result.towards
    variable, count = Counter(worst.tolist()).most_common(1)[0]
    finding = result.findings[variable]
    contrast, times = Counter(towards[n] for n in flagged[worst == variable]).most_common(1)[0]
    often = None if contrast is None or contrast == finding.name else direction(finding, contrast)
    if len(result.findings) == 1:
        return [] if often is None else [f"Most often {often}: {times:,} of them."]
    line = f"Mostly because of {finding.name}: the worst case for {count:,} of them"
    return [f"{line}." if often is None else f"{line}, most often {often}."]


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
    numbers = [f"a higher or lower {finding.name}" for finding in result.findings if finding.kind == "continuous"]
    return [
        f"{start} {int(proved.within.sum()):,} of {people(result.judged)} no point on the path to "
        f"{joined([*_other_group(result.findings), *numbers], 'or')} changes {what} by more than {limit}: proved, "
        "not sampled.",
        f"For {worse:,} of the {people(certified)} with a certificate a point on the path is worse than its end "
        f"by more than {limit}.",
        *without,
    ]


def certificate_unit(result: AuditRecord) -> str:
    """Return the unit of what certificates bound: the prediction in the total reading, else the score."""
    return result.effect_unit if result.certificates is not None and result.certificates.total else result.unit


def reliability_lines(result: AuditRecord) -> list[str]:
    """Return who was left out and how real counterfactual rows look, in a sentence; nothing where not asked for."""
    if result.abstain is None:
        return []
    count, weighted = result.reasons.count(DISAGREE), "" if result.weights is None else " by weight"
    line = f"{count:,} of {people(len(result))} ({percent(result.share_left_out)}{weighted}) "
    line += f"{verb(count)} left out, but for the verdict: the refits disagree about them most"
    line = line if count else "Nobody is left out because the refits disagree"
    median = result.median_distance
    if median is None or math.isnan(median):
        return [f"{line}."]
    real = f"{median:.2f} times as far from real people as these are from each other"
    return [f"{line}; the median counterfactual is {real}."]


def next_lines(result: AuditRecord) -> list[str]:
    """Return what to do next, in a sentence or two; nothing where nobody is flagged or no step was tried."""
    if result.steps is None or not bool(result.flagged.any()):
        return []
    return [f"Next: {result.steps.sentence}"]


def because(finding: Finding, towards: str | None) -> str:
    """Return one contrast of a variable in words: "race (towards White)", "age + 13.6"."""
    if towards is None or towards == finding.name:
        return finding.name
    return towards if finding.kind == "continuous" else f"{finding.name} ({direction(finding, towards)})"


def direction(finding: Finding, towards: str) -> str:
    """Return the direction of a contrast; derivatives also lead away from the own class, and say so themselves."""
    return f"towards {towards}" if towards in finding.levels else towards


def _if_they(findings: Sequence[Finding]) -> str:
    """Return the condition under which the prediction would change."""
    conditions = [f"if they belonged to {group}" for group in _other_group(findings)]
    conditions += [
        f"if their {finding.name} were one standard deviation{_step_in_brackets(finding)} higher or lower"
        for finding in findings
        if finding.kind == "continuous"
    ]
    return joined(conditions, "or")


def _other_group(findings: Sequence[Finding]) -> list[str]:
    """Return which group people are compared with, where any variable has groups."""
    classes = [finding for finding in findings if finding.kind != "continuous"]
    several = len(classes) > 1 or any(len(finding.levels) > 2 for finding in classes)
    return [f"{'another' if several else 'the other'} group"] if classes else []


def _step_in_brackets(finding: Finding) -> str:
    """Return " (13.6)" where the contrasts of a number say how far they go."""
    up = f"{finding.name} + "
    return next((f" ({words.removeprefix(up)})" for words in finding.contrasts if words.startswith(up)), "")


def variable_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return the finding of one protected variable in a sentence, with all that is special about it.

    Where it is the only variable, the verdict is the first half.
    """
    notes = variable_notes(result, finding)
    if len(result.findings) == 1:
        return [f"{finding.name}: {'; '.join(notes)}"] if notes else []
    tally = finding.tally(result.weights)
    line = f"{tally.flagged:,} of {people(tally.judged)} ({percent(tally.share_flagged)}) flagged"
    if tally.confident is not None:
        line += f", {tally.confident:,} confidently"
    if finding.verdict is not None:
        words = MODEL_WORDS[finding.verdict.word]
        line += f"; {words[0].lower()}{words[1:]} by it alone"
    if result.tells_variables_apart:
        line += f"; the worst case for {percent(result.worst_case[finding.name])} of people"
    return [f"{finding.name}: {'; '.join([line, *notes])}"]


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


def _group_line(result: AuditRecord, group: Group) -> str:
    inferred = f" ({group.inferred:,} inferred)" if group.inferred else ""
    line = f"{group.name}: {people(group.people)}{inferred}, mean prediction {number(group.mean_prediction)}"
    if group.mean_effect is not None:
        line += f", mean {signed_word(result)} {amount(group.mean_effect, result.unit, sign=True)}"
    return f"{line}, {percent(group.share_flagged)} flagged"


def signed_word(result: AuditRecord) -> str:
    """Return what a signed value of this test is called."""
    return "effect" if result.is_effect else "signed score"


def proxy_lines(finding: Finding) -> list[str]:
    """Return in which features a protected variable shows, in one sentence where there are any."""
    named = [f"{name} {number(value)}" for name, value in list(finding.proxy.items())[:5]]
    return [f"{finding.name} shows in: {', '.join(named)}"] if named else []


def flip_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return how many people's decision at one half depends on their group, a line; nothing where that has no sense."""
    each = [
        f"{name} {len(flips.negative):,} of {flips.people:,} only in another group and {len(flips.positive):,} only in "
        "their own"
        for name, flips in result.flips(finding).items()
    ]
    return [f"A prediction of at least one half: {'; '.join(each)}"] if each else []


def quality_line(quality: AuxiliaryQuality) -> str:
    """Return how well the auxiliary predicts its protected variable, in one sentence."""
    metric = {"auc": "AUC", "r2": "R2"}.get(quality.metric, quality.metric)
    return (
        f"{quality.variable} is predicted from the model's columns with {metric} {number(quality.value)} "
        f"(chance {number(quality.chance)}) on {quality.rows:,} held-out rows"
    )


def alignment_line(finding: Finding) -> str:
    """Return the alignment share of a protected variable, in one sentence."""
    error = finding.alignment_error
    error_words = "" if math.isnan(error) else f" (± {percent(error)})"
    return (
        f"Alignment share of {finding.name}: {percent(finding.alignment_share)}{error_words} of the "
        "model's local variation lies along it"
    )


def reading_words(result: AuditRecord) -> dict[str, str]:
    """Return what happens to a person in each reading."""
    kinds = {finding.kind for finding in result.findings}
    step = "going one standard deviation up or down"
    if kinds == {"continuous"}:
        total = f"{step} with the same ranks there"
    else:
        total = f"becoming a member of {'the other' if result.two_groups else 'another'} group"
        total += f" (of a number: {step})" if "continuous" in kinds else ""
        total += " with the same ranks in it"
    words = {"total": total}
    if result.direct is not None:
        words = {"direct": "the smallest edit of a person that changes the protected variable", **words}
    if any(finding.same_outcome is not None for finding in result.findings):
        words["same outcome"] = f"{total}, among people with the same value of {result.settings.get('label')}"
    return words


def reading_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return the readings, a sentence each or one for all beside other variables, and what they say together."""
    readings, several = finding.readings(result.weights), len(result.findings) > 1
    sizes = [f"{name} {amount(reading.mean_absolute, result.effect_unit)}" for name, reading in readings.items()]
    lines = [f"Readings of {finding.name}, mean size: {', '.join(sizes)}"] if several else []
    lines += [] if several else [reading_line(result, finding, name) for name in readings]
    return [*lines, *gap_lines(result, finding), *held_equal_lines(result, finding)]


def reading_line(result: AuditRecord, finding: Finding, name: str) -> str:
    """Return one reading in a sentence: what happens to people, the mean size, and the mean in each group."""
    reading, unit = finding.readings(result.weights)[name], result.effect_unit
    groups = [  # over everyone together the signs of the groups would cancel
        f"{group} {amount(part.mean_effect, unit, sign=True)}" for group, part in reading.groups.items()
    ]
    title = "Reading at the same outcome" if name == "same outcome" else f"{name.capitalize()} reading"
    size = amount(reading.mean_absolute, unit)
    some = f" ({drawn:,} people drawn at random)" if name == "same outcome" and (drawn := _drawn(finding)) else ""
    return f"{title}, {reading_words(result)[name]}{some}: mean size {size}; {', '.join(groups)}"


def _drawn(finding: Finding) -> int:
    """Return of how many people the effect at the same outcome is known, where they were drawn; else 0."""
    assert finding.same_outcome is not None
    return int((~finding.same_outcome.isnan()).sum()) if len(finding.same_outcome) > SAMPLED else 0


def gap_lines(result: AuditRecord, finding: Finding) -> list[str]:
    """Return the gap between groups taken apart along the graph, a sentence for each pair of groups."""

    def size(value: float) -> str:
        return amount(value, result.effect_unit, sign=True)

    return [
        f"From {finding.name}={part.group} to {part.towards} the mean prediction changes by {size(part.gap)}: "
        f"{size(part.direct)} by {finding.name} itself, {size(-part.indirect)} through what it acts on in the graph, "
        f"and {size(-part.spurious)} spurious, which is no effect of {finding.name}: the groups differ in other causes"
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
        line = f"With {columns} held equal {_compared(result, finding, finding.effect, columns)}"
        lines.append(f"{line} The verdict uses this.")
    if finding.same_outcome is not None:
        line = f"Among people with the same outcome ({label}) "
        line += _compared(result, finding, finding.same_outcome, str(label))
        line += f" The verdict uses {verdict}." if verdict else ""
        lines.append(f"{line} If {label} itself is biased, holding it equal hides that bias.")
    return lines


def _compared(result: AuditRecord, finding: Finding, effect: Tensor, columns: str) -> str:
    """Return how an effect (N,) with columns held equal compares with the total one, over the people who have both."""
    known = ~(effect + finding.total).isnan()
    size, total = (
        finding.reading(each.where(known, math.nan), result.weights).mean_absolute for each in (effect, finding.total)
    )
    words, total_words = (amount(value, result.effect_unit) for value in (size, total))
    of = f"the effect of {finding.name}" + ("" if result.test == "rank" else " that rank finds")
    if cell(size, result.effect_unit) == cell(total, result.effect_unit):
        return f"{of} is about as large as in total: {total_words}."
    if size > total:
        return f"{of} is {words} instead of {total_words}: differences in {columns} between the groups hide part of it."
    return (
        f"{of} is {words}, {percent(1 - size / total)} less than the total effect of {total_words}: that part goes "
        f"with differences in {columns} between the groups."
    )


def score_line(result: AuditRecord) -> str:
    """Return what the score says, and in what unit."""
    return f"The score: {result.meaning} Unit: {unit_words(result.unit)}."


def effect_lines(result: AuditRecord) -> list[str]:
    """Return through which features the effect goes, in one sentence where it was explained."""
    if result.features.effect is None:
        return []
    largest = list(result.features.effect.total.items())[:5]
    named = [f"{name} {amount(value, result.effect_unit)}" for name, value in largest]
    return [f"The effect goes through: {', '.join(named)} (mean size per person)"]


def check_lines(result: AuditRecord) -> list[str]:
    """Return the numbers by which tests judge their fits and the model as a whole, a line for each test with any."""
    checks = {result.test: result.checks} if result.comparison is None else result.comparison.checks
    return [
        f"{test} also says: {'; '.join(f'{CHECKS.get(name, name)} {number(value)}' for name, value in own.items())}"
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
    stays = "; part of the gap is meant to stay: columns are given" if given else ""
    lines = [
        f"{name}: the map accounts for {100 * check.accounted:z.0f} % of the gap "
        f"({f'{cell(check.effect, unit)} of {cell(check.gap, unit)} {points}'.rstrip()}{stays})."
        for name, check in zip(map_check_names(result), result.map_checks, strict=True)
        if check.accounted is not None
    ]
    if result.still:
        among = f" among people with the same {joined(given, 'and')}" if given else ""
        what = "this feature does" if len(result.still) == 1 else "these features do"
        still = joined(result.still, "and")
        lines.append(f"The groups do not differ beyond chance in {still}{among}: {what} not move.")
    return lines


def comparison_lines(result: AuditRecord) -> list[str]:
    """Return a line per test that was run beside the audit's own, and one per test that was not."""
    if result.comparison is None:
        return []
    own = result.comparison.agreement[:, result.comparison.tests.index(result.test)].tolist()
    lines = [
        f"{name}: rank correlation with {result.test} {number(rho)}, {seconds:.1f} s"
        for (name, seconds), rho in zip(result.comparison.seconds.items(), own, strict=True)
    ]
    return [*lines, *comparison_notes(result)]


def comparison_notes(result: AuditRecord) -> list[str]:
    """Return how long the auxiliaries of several tests took to train, and which tests were not run and why."""
    if result.comparison is None:
        return []
    start = f"Training the auxiliaries that move and faux share took {result.comparison.training_seconds:.1f} s more"
    return [start, *(f"{name} was not run: {why}" for name, why in result.comparison.skipped.items())]

"""An audit in plain words: the sentences that the summary, the command and the page share."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.reliability import DISAGREE
from fairfox.result import AuditResult, Finding, Group

MOST_DELTAS = 3  # of single groups that the verdict names


def summary_lines(result: AuditResult) -> list[str]:
    """Return the audit in a dozen lines, and some for each further protected variable."""
    lines = [f"fairfox audit of {people(len(result))}, test '{result.test}', protected: {', '.join(result.variables)}"]
    lines += verdict(result)
    lines += [f"{people(count)} not judged: {reason}" for reason, count in result.abstained_by_reason.items()]
    lines.append(f"The score: {result.meaning} Unit: {unit_words(result.unit)}.")
    lines += check_lines(result)
    lines += effect_lines(result)
    for finding in result.findings:
        lines += variable_lines(result, finding)
        lines += [_group_line(result, group) for group in finding.groups]
        lines += proxy_lines(finding)
        lines += reading_lines(result, finding)
        lines += flip_lines(result, finding)
        lines += [quality_line(finding.quality), alignment_line(finding)]
    lines += comparison_lines(result)
    return lines + [f"Warning: {warning}" for warning in result.warnings]


CHECKS = {  # in words
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


def check_lines(result: AuditResult) -> list[str]:
    """Return what tests say about their fits and about the model as a whole, a line each; nothing of silent ones."""
    all_of_them = {result.test: result.checks} if result.comparison is None else result.comparison.checks
    return [
        f"{test} also says: {'; '.join(f'{CHECKS.get(name, name)} {number(value)}' for name, value in checks.items())}"
        for test, checks in all_of_them.items()
        if checks
    ]


def ended(sentence: str) -> str:
    """Return a sentence that ends once."""
    return sentence if sentence.endswith((".", "?", "!")) else f"{sentence}."


def flip_lines(result: AuditResult, finding: Finding) -> list[str]:
    """Return how many people's decision at one half depends on their group, a line; nothing where it cannot be said."""
    each = [
        f"{name} {len(found.negative):,} of {found.people:,} only in another group and {len(found.positive):,} only in "
        "their own"
        for name, found in result.flips(finding).items()
    ]
    return [f"A prediction of at least one half: {'; '.join(each)}"] if each else []


def comparison_lines(result: AuditResult) -> list[str]:
    """Return a line per test that was run beside the audit's own, and one per test that was not."""
    if result.comparison is None:
        return []
    own = result.comparison.agreement[:, result.comparison.tests.index(result.test)].tolist()
    told = [
        f"{name}: rank correlation with {result.test} {number(rho)}, {cost.seconds:.1f} s, {megabytes(cost.memory)}"
        for (name, cost), rho in zip(result.comparison.costs.items(), own, strict=True)
    ]
    shared = f"training the auxiliaries that move and faux share: {result.comparison.training.seconds:.1f} s"
    return [*told, shared, *(f"{name}: not run, {why}" for name, why in result.comparison.skipped.items())]


def megabytes(size: int) -> str:
    """Return a size in words."""
    return f"{size / 2**20:,.0f} MB"


def verdict(result: AuditResult) -> list[str]:
    """Return how many people are flagged, how surely, because of what, what is proved, who is left out."""
    if not result.judged:
        return ["Nobody could be judged."]
    limit, flagged = amount(result.delta, result.unit), int(result.flags.sum())
    if result.deltas:
        own = [f"{name}: {amount(delta, result.unit)}" for name, delta in result.deltas.items()]
        limit += f" ({', '.join(own) if len(own) <= MOST_DELTAS else 'some groups have their own delta'})"
    verb, weighted = "is" if flagged == 1 else "are", "" if result.weights is None else " by weight"
    found = f"{flagged:,} of {people(result.judged)} ({percent(result.share_flagged)}{weighted}) {verb} flagged"
    if len(result.findings) > 1 and result.tells_variables_apart:
        found += f" because of at least one of {len(result.findings)} variables"
    if result.is_effect:
        condition = "if only the protected column said another group" if result.test == "unawareness" else None
        kept = result.settings.get("legitimate")
        same = f", with {listed(kept, 'and')} as they are" if kept and condition is None else ""
        change = f"the prediction would change by more than {limit}"
        if result.decision_threshold is not None:
            limit = f"a prediction of {number(result.decision_threshold)}"
            change = f"they would be decided on otherwise, yes from {limit} on,"
        found += f": {change} {condition or _if_they(result.findings)}{same}."
    else:
        what = result.unit.removesuffix(" (probability)").replace(" (", ", ").removesuffix(")")  # the limit has points
        found += f": the score ({what}) is above {limit}."
    if result.confident_flags is None:
        surely = "There is no interval, so nobody is flagged confidently: one re-fit, or a test that learns nothing."
    else:
        decided = "what turns the decision" if result.decision_threshold is not None else limit
        beyond = "delta" if result.deltas else decided
        surely = f"{int(result.confident_flags.sum()):,} of them confidently: the whole interval lies beyond {beyond}."
    told = [*_word(result), found, surely, *_listed(result), *_size(result), *_mostly(result), *_chance(result)]
    return [*told, *certificate_lines(result), *reliability_lines(result), *next_lines(result)]


_WORDS = {"fails": "The model fails", "passes": "The model passes", "cannot tell": "Whether the model passes is open"}
_ALONE = {word: sentence[0].lower() + sentence[1:] for word, sentence in _WORDS.items()}


def _word(result: AuditResult) -> list[str]:
    """Return the verdict on the model and why, in a sentence; nothing without intervals."""
    found, many = result.verdict, len(result.findings)
    if found is None:
        return []
    worst = f", judged by {found.variable}, the worst of {many} protected variables" if many > 1 else ""
    why = found.why
    if result.is_effect and not result.deltas:
        why = why.replace("over delta", f"treated differently by more than {amount(result.delta, result.unit)}")
    alone = f"By {found.variable} alone: " if many > 1 else ""
    return [f"{_WORDS[found.word]}{worst}. {alone}{why}"]


def _listed(result: AuditResult) -> list[str]:
    if result.listed is None:
        return []
    count, fdr = int(result.listed.sum()), result.settings["fdr"]
    if not count:
        return ["Nobody is on the list of people for whom that is surely so."]
    verb, wrong = "is" if count == 1 else "are", f"{100 * fdr:.3g} %"
    of_all = "of such a list, which allows for how many are looked at,"
    return [f"{count:,} {verb} on the list of people for whom that is so; {of_all} at most {wrong} is wrong."]


def _size(result: AuditResult) -> list[str]:
    """Return how much the prediction changes and through which features, in a sentence; nothing for other scores."""
    mean = None if result.verdict is None else result.verdict.mean
    if result.verdict is None or mean is None or not result.is_effect:
        return []
    unit, because = result.unit, f" because of {result.verdict.variable}" if len(result.findings) > 1 else ""
    found = f"On average the prediction would change by {amount(mean.value, unit)}{because}, in either direction "
    found += f"(95 % interval {amount(mean.lower, unit)} to {amount(mean.upper, unit)})"
    effect = result.features.effect
    through = [] if effect is None else [name for name, value in list(effect.total.items())[:3] if value > 0]
    return [f"{found}, mostly through {listed(through, 'and')}." if through else f"{found}."]


def _chance(result: AuditResult) -> list[str]:
    """Return what shuffled protected values give, in a sentence; nothing where nobody asked."""
    if result.null is None:
        return []
    share = [
        f"alignment share of {finding.name} {percent(float(result.null.alignment[:, v].mean()))} instead of "
        f"{percent(finding.alignment_share)}, p-value {number(result.null.p_alignment(v, finding.alignment_share))}"
        for v, finding in enumerate(result.findings)
    ]
    mean, most = amount(result.null.mean_score, result.unit), amount(result.null.delta, result.unit)
    return [f"With shuffled protected values the mean score is {mean}, and 95 % stay below {most}; {'; '.join(share)}."]


def next_lines(result: AuditResult) -> list[str]:
    """Return what to do next, in a sentence or two; nothing where nobody is flagged or nothing was found out."""
    if result.steps is None or not bool(result.flags.any()):
        return []
    return [f"Next: {result.steps.sentence}", *([] if result.steps.train_fair is None else [result.steps.train_fair])]


def certificate_lines(result: AuditResult) -> list[str]:
    """Return what is proved about the way to the other group, in a sentence each; nothing where nobody asked."""
    proved = result.certificates
    if proved is None:
        return []
    without = [f"{people(count)} without a certificate: {why}." for why, count in result.uncertified_by_reason.items()]
    certified, worse = int(proved.certified.sum()), int(proved.worse_inside.sum())
    if not certified:
        return without
    unit, own = (result.effect_unit, False) if proved.total else (result.unit, bool(result.deltas))
    limit = "delta" if own else amount(proved.delta, unit)
    where = "In the total reading, for" if proved.total else "For"
    what = "the prediction, times the alignment share," if result.test.endswith("/a") else "the prediction"
    return [
        f"{where} {int(proved.within.sum()):,} of {people(result.judged)} no point on the way to "
        f"{_destination(result.findings)} changes {what} by more than {limit}: proved, not sampled.",
        f"For {worse:,} of the {people(certified)} with a certificate a point on the way is worse than its end "
        f"by more than {limit}.",
        *without,
    ]


def reliability_lines(result: AuditResult) -> list[str]:
    """Return who was left out and how real counterfactual people look, in a sentence; nothing where nobody asked."""
    if result.abstain is None:
        return []
    count, weighted = result.reasons.count(DISAGREE), "" if result.weights is None else " by weight"
    told = f"{count:,} of {people(len(result))} ({percent(result.share_left_out)}{weighted}) "
    told += f"{'is' if count == 1 else 'are'} left out: the re-fits disagree about them most"
    told = told if count else "Nobody is left out because the re-fits disagree"
    median = result.median_distance
    if median is None or math.isnan(median):
        return [f"{told}."]
    real = f"{median:.2f} times as far from real people as these are from each other"
    return [f"{told}; the median counterfactual is {real}."]


def _destination(findings: Sequence[Finding]) -> str:
    """Return where the way goes."""
    numbers = [f"a higher or lower {finding.name}" for finding in findings if finding.kind == "continuous"]
    return listed([*_other_group(findings), *numbers], "or")


def _other_group(findings: Sequence[Finding]) -> list[str]:
    """Return which group people are compared with, where any variable has groups."""
    classes = [finding for finding in findings if finding.kind != "continuous"]
    several = len(classes) > 1 or any(len(finding.levels) > 2 for finding in classes)
    return [f"{'another' if several else 'the other'} group"] if classes else []


def _if_they(findings: Sequence[Finding]) -> str:
    """Return under what the prediction would change."""
    parts = [f"if they belonged to {group}" for group in _other_group(findings)]
    parts += [
        f"if their {finding.name} were one standard deviation{_step_in_brackets(finding)} higher or lower"
        for finding in findings
        if finding.kind == "continuous"
    ]
    return listed(parts, "or")


def _step_in_brackets(finding: Finding) -> str:
    """Return " (13.6)" where the contrasts of a number say how far they go."""
    up = f"{finding.name} + "
    return next((f" ({words.removeprefix(up)})" for words in finding.contrasts if words.startswith(up)), "")


def _mostly(result: AuditResult) -> list[str]:
    """Return which variable, and which contrast of it, most flags are due to; nothing where there is no choice."""
    flagged = result.flags.numpy(force=True).nonzero()[0]
    if result.two_groups or not result.tells_variables_apart or not len(flagged):
        return []
    worst, towards = result.worst.numpy(force=True)[flagged], result.towards
    place, count = Counter(worst.tolist()).most_common(1)[0]
    finding = result.findings[place]
    ways = Counter(towards[n] for n in flagged[worst == place])
    way, times = ways.most_common(1)[0]
    if len(result.findings) == 1:
        return [] if way is None or way == finding.name else [f"Most often {_way(finding, way)}: {times:,} of them."]
    often = "" if way is None or way == finding.name else f", most often {_way(finding, way)}"
    return [f"Mostly because of {finding.name}: the worst case for {count:,} of them{often}."]


def because(finding: Finding, towards: str | None) -> str:
    """Return one contrast of a variable in words: "race (towards White)", "age + 13.6"."""
    if towards is None or towards == finding.name:
        return finding.name
    return towards if finding.kind == "continuous" else f"{finding.name} ({_way(finding, towards)})"


def _way(finding: Finding, towards: str) -> str:
    """Return the direction of a contrast; derivatives also go away from the own class, and say so themselves."""
    return f"towards {towards}" if towards in finding.levels else towards


def variable_lines(result: AuditResult, finding: Finding) -> list[str]:
    """Return what was found for one protected variable in one sentence, with all that is special about it.

    Where it is the only one, the verdict has said the first half already.
    """
    notes = variable_notes(result, finding)
    if len(result.findings) == 1:
        return [f"{finding.name}: {'; '.join(notes)}"] if notes else []
    flagged, share = int(finding.flags.sum()), percent(finding.share_flagged(result.weights))
    found = f"{flagged:,} of {people(finding.judged)} ({share}) flagged"
    if finding.confident_flags is not None:
        found += f", {int(finding.confident_flags.sum()):,} confidently"
    if finding.verdict is not None:
        found += f"; {_ALONE[finding.verdict.word]} by it alone"
    if result.tells_variables_apart:
        found += f"; the worst case for {percent(result.worst_case[finding.name])} of people"
    return [f"{finding.name}: {'; '.join([found, *notes])}"]


def compared(finding: Finding) -> str:
    """Return in a few words who is compared with whom."""
    if finding.kind == "continuous":
        step = _step_in_brackets(finding)
        return f"one standard deviation{step} up and down" if step else "higher with lower"
    if finding.reference is not None:
        return f"{len(finding.levels)} groups with {finding.reference}"
    return "two groups" if len(finding.levels) == 2 else f"{len(finding.levels)} groups with each other"


def variable_notes(result: AuditResult, finding: Finding) -> list[str]:
    """Return what is special about one protected variable: inferred groups, merged classes, own deltas."""
    notes = []
    if inferred := int(finding.inferred.sum()):
        notes.append(f"own group inferred for {people(inferred)}")
    if finding.unknown:
        notes.append(f"own group unknown for {people(finding.unknown)}")
    if finding.parts:
        notes.append(f"crosses {listed(finding.parts, 'and')}")
    if finding.reference is not None:
        notes.append(f"compared with {finding.reference} only")
    notes += [f"'{name}' puts together {listed(rare, 'and')}" for name, rare in finding.merged.items()]
    notes += [
        f"delta of {group.name} is {amount(result.deltas[group.name], result.unit)}"
        for group in finding.groups
        if group.name in result.deltas
    ]
    return notes


def reading_words(result: AuditResult) -> dict[str, str]:
    """Return what happens to a person in the direct and in the total reading."""
    kinds = {finding.kind for finding in result.findings}
    step = "going one standard deviation up or down"
    if kinds == {"continuous"}:
        total = f"{step} with the same ranks there"
    else:
        total = f"becoming a member of {'the other' if result.two_groups else 'another'} group"
        total += f" (of a number: {step})" if "continuous" in kinds else ""
        total += " with the same ranks in it"
    return {"direct": "the smallest edit of a person that changes the protected variable", "total": total}


def reading_lines(result: AuditResult, finding: Finding) -> list[str]:
    """Return what the direct and the total reading say: a sentence each, or one for both beside other variables."""
    readings, unit = finding.readings(result.weights), result.effect_unit
    if len(result.findings) > 1:
        sizes = [f"{name} {amount(reading.mean_absolute, unit)}" for name, reading in readings.items()]
        return [f"Readings of {finding.name}, mean size: {', '.join(sizes)}"]
    lines, words = [], reading_words(result)
    for name, reading in readings.items():
        size = amount(reading.mean_absolute, unit)
        groups = [  # over everyone together the signs of the groups would cancel
            f"{group} {amount(part.mean_signed, unit, sign=True)}" for group, part in reading.groups.items()
        ]
        lines.append(f"{name.capitalize()} reading ({words[name]}): mean size {size}; {', '.join(groups)}")
    return lines


def quality_line(quality: AuxiliaryQuality) -> str:
    """Return how well the auxiliary predicts its protected variable, in one sentence."""
    metric = {"auc": "AUC", "r2": "R2"}.get(quality.metric, quality.metric)
    return (
        f"{quality.variable} is predicted from the model's columns with {metric} {number(quality.value)} "
        f"(chance {number(quality.chance)}) on {quality.rows:,} held-out rows"
    )


def loss_words(quality: AuxiliaryQuality) -> str:
    """Return how far the auxiliary's predictions are off, against chance."""
    what = "squared error" if quality.metric == "r2" else "log-loss"
    return f"{what} {number(quality.log_loss)} (chance {number(quality.chance_log_loss)})"


def alignment_line(finding: Finding) -> str:
    """Return the alignment share of a protected variable, in one sentence."""
    error = finding.alignment_error
    give_or_take = "" if math.isnan(error) else f" (± {percent(error)})"
    return (
        f"Alignment share of {finding.name}: {percent(finding.alignment_share)}{give_or_take} of the "
        "model's local variation lies along it"
    )


def _group_line(result: AuditResult, group: Group) -> str:
    line = f"{group.name}: {people(group.people)}"
    if group.inferred:
        line += f" ({group.inferred:,} inferred)"
    line += f", mean prediction {number(group.mean_prediction)}"
    if group.mean_signed is not None:
        line += f", mean {signed_word(result)} {amount(group.mean_signed, result.unit, sign=True)}"
    return f"{line}, {percent(group.share_flagged)} flagged"


def signed_word(result: AuditResult) -> str:
    """Return what a signed value of this test is called."""
    return "effect" if result.is_effect else "signed score"


def effect_lines(result: AuditResult) -> list[str]:
    """Return through which features the effect goes, in one sentence where it was explained."""
    if result.features.effect is None:
        return []
    largest = list(result.features.effect.total.items())[:5]
    named = [f"{name} {amount(value, result.effect_unit)}" for name, value in largest]
    return [f"The effect goes through: {', '.join(named)} (mean size per person)"]


def proxy_lines(finding: Finding) -> list[str]:
    """Return in which features a protected variable shows, in one sentence where there are any."""
    named = [f"{name} {number(value)}" for name, value in list(finding.proxy.items())[:5]]
    return [f"{finding.name} shows in: {', '.join(named)}"] if named else []


def listed(words: Sequence[str], last: str) -> str:
    """Return words as a list is spoken.

    Example:
        >>> listed(["sex", "race", "age"], "or")
        'sex, race or age'
    """
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def amount(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number as people read it: probabilities in points, anything else with three digits.

    Example:
        >>> amount(0.05, "probability"), amount(0.12345, "logit", sign=True)
        ('5 points', '+0.123')
    """
    if value is None or not math.isfinite(value):
        return "unknown"
    if "probability" not in unit:
        return number(value, sign=sign)
    points = 100 * value
    digits = f"{points:+.1f}" if abs(points) >= 0.1 else f"{points:+.1g}"
    shown = _trimmed(digits, sign=sign)
    return f"{shown} {'point' if shown.lstrip('+-') == '1' else 'points'}"


def cell(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number for a column whose heading ends with `heading_unit`; a dash where there is none.

    Example:
        >>> cell(0.05, "probability"), cell(5975.2, "value"), cell(None, "value")
        ('5.0', '5,975', '-')
    """
    if value is None or not math.isfinite(value):
        return "-"
    plus = "+" if sign else ""
    return f"{100 * value:{plus}.1f}" if "probability" in unit else number(value, sign=sign)


def unit_words(unit: str) -> str:
    """Return the unit as people read it: probabilities are in points."""
    return unit.replace("(probability)", "(points)")


def heading_unit(unit: str) -> str:
    """Return " (points)" where the cells of a column are in points."""
    return " (points)" if "probability" in unit else ""


def number(value: float | None, *, sign: bool = False) -> str:
    """Return a number with three digits, or without decimals from a thousand on."""
    if value is None or not math.isfinite(value):
        return "unknown"
    return _trimmed(f"{value:+,.0f}" if 1e3 <= abs(value) < 1e12 else f"{value:+.3g}", sign=sign)


def percent(share: float | None) -> str:
    """Return a share as a percentage with one digit."""
    return "unknown" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def people(count: int) -> str:
    """Return "1 person" or "1,234 people"."""
    return "1 person" if count == 1 else f"{count:,} people"


def _trimmed(digits: str, *, sign: bool) -> str:
    digits = digits.removesuffix(".0")
    bare = float(digits.replace(",", "")) == 0 or (digits[0] == "+" and not sign)
    return digits[1:] if bare else digits

"""An audit line by line, beside the verdict: its variables, groups, features, readings and checks."""

from __future__ import annotations

import math

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.report.contrasts import reading_words
from fairfox.report.text import amount, listed, megabytes, number, people, percent, unit_words
from fairfox.report.verdict import IN_WORDS, verdict
from fairfox.result import AuditResult, Finding, Group

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
_ALONE = {word: sentence[0].lower() + sentence[1:] for word, sentence in IN_WORDS.items()}


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
        second = f" (and {finding.reference} with {finding.second})" if finding.second is not None else " only"
        notes.append(f"compared with {finding.reference}{second}")
    notes += [f"'{name}' puts together {listed(rare, 'and')}" for name, rare in finding.merged.items()]
    notes += [
        f"delta of {group.name} is {amount(result.deltas[group.name], result.unit)}"
        for group in finding.groups
        if group.name in result.deltas
    ]
    return notes


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


def flip_lines(result: AuditResult, finding: Finding) -> list[str]:
    """Return how many people's decision at one half depends on their group, a line; nothing where it cannot be said."""
    each = [
        f"{name} {len(found.negative):,} of {found.people:,} only in another group and {len(found.positive):,} only in "
        "their own"
        for name, found in result.flips(finding).items()
    ]
    return [f"A prediction of at least one half: {'; '.join(each)}"] if each else []


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


def check_lines(result: AuditResult) -> list[str]:
    """Return what tests say about their fits and about the model as a whole, a line each; nothing of silent ones."""
    all_of_them = {result.test: result.checks} if result.comparison is None else result.comparison.checks
    return [
        f"{test} also says: {'; '.join(f'{CHECKS.get(name, name)} {number(value)}' for name, value in checks.items())}"
        for test, checks in all_of_them.items()
        if checks
    ]


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

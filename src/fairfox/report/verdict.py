"""The verdict in sentences: how many people are flagged, how surely, because of what, and what to do next."""

from __future__ import annotations

import math
from collections import Counter

from fairfox.reliability import DISAGREE
from fairfox.report.contrasts import destination, direction, if_they
from fairfox.report.text import amount, listed, number, people, percent
from fairfox.result import AuditResult

MOST_DELTAS = 3  # of single groups that the verdict names
IN_WORDS = {"fails": "The model fails", "passes": "The model passes", "cannot tell": "Whether the model passes is open"}


def verdict(result: AuditResult) -> list[str]:
    """Return how many people are flagged, how surely, because of what, what is proved, who is left out."""
    if not result.judged:
        return ["Nobody could be judged."]
    told = [*_word(result), _flagged(result), _surely(result), *_listed(result), *_size(result), *_mostly(result)]
    told += _chance(result)
    return [*told, *certificate_lines(result), *reliability_lines(result), *next_lines(result)]


def _flagged(result: AuditResult) -> str:
    """Return how many people are flagged, and what that means."""
    flagged, weighted = int(result.flags.sum()), "" if result.weights is None else " by weight"
    found = f"{flagged:,} of {people(result.judged)} ({percent(result.share_flagged)}{weighted}) "
    found += f"{'is' if flagged == 1 else 'are'} flagged"
    if len(result.findings) > 1 and result.tells_variables_apart:
        found += f" because of at least one of {len(result.findings)} variables"
    return f"{found}: {_meaning(result)}."


def _meaning(result: AuditResult) -> str:
    """Return what is so for people who are flagged."""
    limit = _limit(result)
    if not result.is_effect:
        what = result.unit.removesuffix(" (probability)").replace(" (", ", ").removesuffix(")")  # the limit has points
        return f"the score ({what}) is above {limit}"
    change = f"the prediction would change by more than {limit}"
    if result.decision_threshold is not None:
        change = f"they would be decided on otherwise, yes from a prediction of {number(result.decision_threshold)} on,"
    if result.test == "unawareness":
        return f"{change} if only the protected column said another group"
    kept = result.settings.get("legitimate")
    return f"{change} {if_they(result.findings)}" + (f", with {listed(kept, 'and')} as they are" if kept else "")


def _limit(result: AuditResult) -> str:
    """Return delta, and those of single groups where they are few."""
    limit = amount(result.delta, result.unit)
    if not result.deltas:
        return limit
    own = [f"{name}: {amount(delta, result.unit)}" for name, delta in result.deltas.items()]
    return f"{limit} ({', '.join(own) if len(own) <= MOST_DELTAS else 'some groups have their own delta'})"


def _surely(result: AuditResult) -> str:
    """Return how many people are flagged confidently."""
    if result.confident_flags is None:
        return "There is no interval, so nobody is flagged confidently: one re-fit, or a test that learns nothing."
    decided = "what turns the decision" if result.decision_threshold is not None else _limit(result)
    beyond = "delta" if result.deltas else decided
    return f"{int(result.confident_flags.sum()):,} of them confidently: the whole interval lies beyond {beyond}."


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
    return [f"{IN_WORDS[found.word]}{worst}. {alone}{why}"]


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
    often = None if way is None or way == finding.name else direction(finding, way)
    if len(result.findings) == 1:
        return [] if often is None else [f"Most often {often}: {times:,} of them."]
    told = f"Mostly because of {finding.name}: the worst case for {count:,} of them"
    return [f"{told}." if often is None else f"{told}, most often {often}."]


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
        f"{destination(result.findings)} changes {what} by more than {limit}: proved, not sampled.",
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


def next_lines(result: AuditResult) -> list[str]:
    """Return what to do next, in a sentence or two; nothing where nobody is flagged or nothing was found out."""
    if result.steps is None or not bool(result.flags.any()):
        return []
    return [f"Next: {result.steps.sentence}", *([] if result.steps.train_fair is None else [result.steps.train_fair])]

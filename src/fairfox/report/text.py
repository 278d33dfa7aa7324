"""An audit in plain words: the sentences that the summary, the command and the page share."""

from __future__ import annotations

import math

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.result import AuditResult, Group

READINGS = {
    "direct": "the smallest edit of a person that changes the protected variable",
    "total": "becoming a member of the other group with the same ranks in it",
}


def summary_lines(result: AuditResult) -> list[str]:
    """Return the audit in a dozen lines."""
    lines = [f"fairfox audit of {people(len(result))}, test '{result.test}', protected: {', '.join(result.variables)}"]
    lines += verdict(result)
    lines += [f"{people(count)} not judged: {reason}" for reason, count in result.abstained_by_reason.items()]
    lines.append(f"The score: {result.meaning} Unit: {unit_words(result.unit)}.")
    lines += [_group_line(result, group) for group in result.groups]
    lines += _feature_lines(result)
    lines += reading_lines(result)
    lines += [quality_line(quality) for quality in result.auxiliary]
    lines += alignment_lines(result)
    return lines + [f"Warning: {warning}" for warning in result.warnings]


def verdict(result: AuditResult) -> list[str]:
    """Return how many people are flagged, and how surely, as two sentences."""
    if not result.judged:
        return ["Nobody could be judged."]
    limit, flagged = amount(result.delta, result.unit), int(result.flags.sum())
    verb = "is" if flagged == 1 else "are"
    found = f"{flagged:,} of {people(result.judged)} ({percent(result.share_flagged)}) {verb} flagged"
    if result.is_effect:
        found += f": the prediction would change by more than {limit} if they belonged to the other group."
    else:
        found += f": the score is above {limit}, {unit_words(result.unit)}."
    if result.confident_flags is None:
        return [found, "This test gives no interval, so nobody is flagged confidently."]
    return [
        found,
        f"{int(result.confident_flags.sum()):,} of them confidently: the whole interval lies beyond {limit}.",
    ]


def reading_lines(result: AuditResult) -> list[str]:
    """Return what the direct and the total reading say, one sentence each."""
    lines = []
    for name, reading in result.readings.items():
        size = amount(reading.mean_absolute, result.effect_unit)
        groups = [  # over everyone together the signs of the groups would cancel
            f"{group} {amount(part.mean_signed, result.effect_unit, sign=True)}"
            for group, part in reading.groups.items()
        ]
        lines.append(f"{name.capitalize()} reading ({READINGS[name]}): mean size {size}; {', '.join(groups)}")
    return lines


def quality_line(quality: AuxiliaryQuality) -> str:
    """Return how well the auxiliary predicts its protected variable, in one sentence."""
    metric = {"auc": "AUC", "r2": "R2"}.get(quality.metric, quality.metric)
    return (
        f"{quality.variable} is predicted from the model's columns with {metric} {number(quality.value)} "
        f"(chance {number(quality.chance)}) on {quality.rows:,} held-out rows"
    )


def alignment_lines(result: AuditResult) -> list[str]:
    """Return the alignment share of each protected variable, in one sentence each."""
    return [
        f"Alignment share of {variable}: {percent(share)}{_give_or_take(result.alignment_error.get(variable))} of the "
        "model's local variation lies along it"
        for variable, share in result.alignment_share.items()
    ]


def _give_or_take(error: float | None) -> str:
    return "" if error is None or math.isnan(error) else f" (± {percent(error)})"


def _group_line(result: AuditResult, group: Group) -> str:
    line = f"{group.name}: {people(group.people)}, mean prediction {number(group.mean_prediction)}"
    if group.mean_signed is not None:
        line += f", mean {signed_word(result)} {amount(group.mean_signed, result.unit, sign=True)}"
    return f"{line}, {percent(group.share_flagged)} flagged"


def signed_word(result: AuditResult) -> str:
    """Return what a signed value of this test is called."""
    return "effect" if result.is_effect else "signed score"


def _feature_lines(result: AuditResult) -> list[str]:
    lines = []
    if result.features.effect is not None:
        largest = list(result.features.effect.total.items())[:5]
        named = [f"{name} {amount(value, result.effect_unit)}" for name, value in largest]
        lines.append(f"The effect goes through: {', '.join(named)} (mean size per person)")
    if result.features.proxy:
        named = [f"{name} {number(value)}" for name, value in list(result.features.proxy.items())[:5]]
        lines.append(f"The protected variable shows in: {', '.join(named)}")
    return lines


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
    return f"{_trimmed(digits, sign=sign)} points"


def cell(value: float | None, unit: str, *, sign: bool = False) -> str:
    """Return a number for a column whose heading ends with `heading_unit`; a dash where there is none."""
    if value is None or not math.isfinite(value):
        return "-"
    plus = "+" if sign else ""
    return f"{100 * value:{plus}.1f}" if "probability" in unit else f"{value:{plus}.3g}"


def unit_words(unit: str) -> str:
    """Return the unit as people read it: probabilities are in points."""
    return unit.replace("(probability)", "(points)")


def heading_unit(unit: str) -> str:
    """Return " (points)" where the cells of a column are in points."""
    return " (points)" if "probability" in unit else ""


def number(value: float | None, *, sign: bool = False) -> str:
    """Return a number with three digits."""
    return "unknown" if value is None or not math.isfinite(value) else _trimmed(f"{value:+.3g}", sign=sign)


def percent(share: float | None) -> str:
    """Return a share as a percentage with one digit."""
    return "unknown" if share is None or not math.isfinite(share) else f"{100 * share:.1f} %"


def people(count: int) -> str:
    """Return "1 person" or "1,234 people"."""
    return "1 person" if count == 1 else f"{count:,} people"


def _trimmed(digits: str, *, sign: bool) -> str:
    digits = digits.removesuffix(".0")
    bare = float(digits) == 0 or (digits[0] == "+" and not sign)
    return digits[1:] if bare else digits

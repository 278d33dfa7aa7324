"""What an audit found, and how it is written down: text, JSON, Parquet."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.certification import Certificates
from fairfox.comparison import Comparison
from fairfox.data.dataset import group_name
from fairfox.data.files import written_whole
from fairfox.errors import OptionError
from fairfox.extras import require
from fairfox.fairtests.registry import EFFECT
from fairfox.flips import FlipSet, flip_sets
from fairfox.reliability import DISAGREE, Reliability
from fairfox.result_parts import FeatureEffect, Features, Finding, Group, Reading
from fairfox.steps import NextSteps
from fairfox.verdicts.model import Verdict, family_verdict
from fairfox.verdicts.nulls import Null
from fairfox.weighted import mean, of_people, share

if TYPE_CHECKING:
    from fairfox.report.charts import Charts

SCHEMA_VERSION = 2
__all__ = ["SCHEMA_VERSION", "AuditResult", "FeatureEffect", "Features", "Finding", "Group", "Reading"]


@dataclass(frozen=True)
class AuditResult:
    """Everything an audit found, one entry per person in the order of the table.

    Scores, signs, intervals and flags are those of the worst case over all protected variables and classes;
    `findings` has them for each variable. Abstained people have score 0.0 here and null in the files, and are left
    out of `share_flagged`. Shares and means are weighted where people have weights, counts never.
    """

    scores: Tensor  # (N,), higher is less fair
    signed: Tensor | None  # (N,); > 0: a higher prediction as a member of the other group
    interval: Tensor | None  # (N, 2), around the signed value (the score where a test has no sign)
    flags: Tensor  # (N,) bool: score above delta
    confident_flags: Tensor | None  # (N,) bool: the whole interval is beyond delta
    abstained: Tensor  # (N,) bool
    reasons: tuple[str | None, ...]  # why abstained
    predictions: Tensor  # (N,)
    worst: Tensor  # (N,) which of the findings attained the score
    findings: tuple[Finding, ...]  # one per protected variable
    counterfactual: Tensor | None  # (N, D) encoded rows x' of the map, for the contrast that counts
    ids: np.ndarray | None  # (N,) the id column, else None
    features: Features
    delta: float
    test: str
    meaning: str  # one sentence: what the score says
    unit: str  # "change of the prediction (probability)", "cosine"
    warnings: tuple[str, ...]
    settings: dict[str, Any]  # seed, versions, options, durations
    deltas: dict[str, float] = field(default_factory=dict)  # delta of single groups, by `Group.name`
    weights: Tensor | None = None  # (N,) how many people each row stands for
    checks: dict[str, float] = field(default_factory=dict)  # what the test says of its fits and of the model as a whole
    comparison: Comparison | None = None  # with every other test that applies
    counterfactual_table: Any = None  # x' in the table's own kind and units, categories the most probable
    certificates: Certificates | None = None  # what is proved about everyone's way to x', where asked for
    reliability: Reliability | None = None  # what doubt and distance are worked out from
    p_values: Tensor | None = None  # (N,) of an effect as large where the true one is no more than delta; None as above
    listed: Tensor | None = None  # (N,) bool: on the list of people over delta, of which few are wrong
    null: Null | None = None  # what is found where the protected values are shuffled, where asked for
    steps: NextSteps | None = None  # what to do next

    def __len__(self) -> int:
        return len(self.scores)

    @property
    def judged(self) -> int:
        """How many people were not abstained."""
        return int((~self.abstained).sum())

    @property
    def share_flagged(self) -> float:
        """Share of flagged people among those not abstained."""
        return share(self.flags, self.abstained, self.weights)

    @property
    def share_confident(self) -> float | None:
        """Share of confidently flagged people among those not abstained; None without an interval."""
        return None if self.confident_flags is None else share(self.confident_flags, self.abstained, self.weights)

    @property
    def verdict(self) -> Verdict | None:
        """The verdict on the model, over all protected variables; None without intervals."""
        found = [finding.verdict for finding in self.findings if finding.verdict is not None]
        return family_verdict(found) if found else None

    @property
    def decision_threshold(self) -> float | None:
        """The prediction from which on people get a yes, where effects count that turn the decision."""
        return self.settings.get("decision_threshold")

    @property
    def share_abstained(self) -> float:
        """Share of abstained people among all."""
        return mean(self.abstained.numpy(force=True), of_people(self.weights, len(self)), nobody=0.0)

    @property
    def abstain(self) -> float | None:
        """The share of people that was to be left out because of doubt; None where nobody asked."""
        return None if self.reliability is None else self.reliability.share

    @property
    def doubt(self) -> Tensor | None:
        """How far the re-fits disagree about everyone (N,), 0 to 1: see `fairfox.reliability.doubt`.

        1 where a test has no evidence at all; None where a test has one re-fit only, or delta is 0.
        """
        return None if self.reliability is None else self.reliability.doubt

    @property
    def distance(self) -> Tensor | None:
        """How far counterfactual rows are from real people (N,), 1 is as far as these are from each other.

        See `fairfox.reliability.distance`. NaN for abstained people; None where the test moves nobody.
        """
        return None if self.reliability is None else self.reliability.distance

    @property
    def median_distance(self) -> float | None:
        """The median of the known distances, NaN where there are none; None where the test moves nobody."""
        if self.distance is None:
            return None
        known = self.distance[~self.distance.isnan()]
        return float(known.double().quantile(0.5)) if len(known) else math.nan

    @property
    def share_left_out(self) -> float:
        """Share of people abstained from because the re-fits disagree, among all."""
        left = np.array([reason == DISAGREE for reason in self.reasons], dtype=bool)
        return mean(left, of_people(self.weights, len(self)), nobody=0.0)

    @property
    def share_certified(self) -> float | None:
        """Share of people with a certificate among those not abstained; None where it was not asked for."""
        return None if self.certificates is None else share(self.certificates.certified, self.abstained, self.weights)

    @property
    def uncertified_by_reason(self) -> dict[str, int]:
        """How many judged people have no certificate for each reason, the most frequent first."""
        if self.certificates is None:
            return {}
        judged = zip(self.certificates.reasons, self.abstained.tolist(), strict=True)
        return dict(Counter(reason for reason, out in judged if reason is not None and not out).most_common())

    @property
    def abstained_by_reason(self) -> dict[str, int]:
        """How many people were abstained for each reason, the most frequent first."""
        away = self.abstained.numpy(force=True)
        counted = Counter(reason or "no reason given" for reason, out in zip(self.reasons, away, strict=True) if out)
        return dict(counted.most_common())

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the protected variables."""
        return tuple(finding.name for finding in self.findings)

    @property
    def two_groups(self) -> bool:
        """Whether one protected variable with two classes was audited, so that no worst case needs a name."""
        return len(self.findings) == 1 and len(self.findings[0].levels) == 2

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of every protected variable, one after the other."""
        return tuple(group for finding in self.findings for group in finding.groups)

    @property
    def auxiliary(self) -> tuple[AuxiliaryQuality, ...]:
        """How well each protected variable is predicted from the features."""
        return tuple(finding.quality for finding in self.findings)

    @property
    def alignment_share(self) -> dict[str, float]:
        """The alignment share of each protected variable."""
        return {finding.name: finding.alignment_share for finding in self.findings}

    @property
    def alignment_error(self) -> dict[str, float]:
        """The standard error of each alignment share."""
        return {finding.name: finding.alignment_error for finding in self.findings}

    @property
    def inferred(self) -> Tensor:
        """Whose own group was inferred for at least one protected variable (N,) bool."""
        return torch.stack([finding.inferred for finding in self.findings]).any(0)

    @property
    def direct(self) -> Tensor:
        """The direct reading of the variable that attained the score (N,)."""
        return self._of_worst([finding.direct for finding in self.findings])

    @property
    def total(self) -> Tensor:
        """The total reading of the variable that attained the score (N,)."""
        return self._of_worst([finding.total for finding in self.findings])

    @property
    def towards(self) -> tuple[str | None, ...]:
        """The contrast that attained the score, in words (N,); None for abstained people."""
        places = zip(self.worst.tolist(), self.abstained.tolist(), strict=True)
        return tuple(None if out else self.findings[v].towards[n] for n, (v, out) in enumerate(places))

    @property
    def tells_variables_apart(self) -> bool:
        """Whether the test knows the protected variables, so that one of them attains the score."""
        return any(finding.is_own for finding in self.findings)

    @property
    def worst_case(self) -> dict[str, float]:
        """For which share of the judged people each protected variable attained the score; empty where none does."""
        if not self.tells_variables_apart:
            return {}
        return {f.name: share(self.worst == v, self.abstained, self.weights) for v, f in enumerate(self.findings)}

    @property
    def is_effect(self) -> bool:
        """Whether the score is a change of the prediction, in the prediction's own unit."""
        return self.unit.partition(" (")[0] == EFFECT

    @property
    def effect_unit(self) -> str:
        """The unit of the readings and of the feature contributions: that of the prediction, "" where not known."""
        return self.unit.partition(" (")[2].removesuffix(")")

    def flips(self, finding: Finding, *, cut: float = 0.5) -> dict[str, FlipSet]:
        """Return for each group whose decision depends on their group, by `Group.name`: a prediction of at least `cut`.

        Only where the score is a change of a probability between classes; {} otherwise.
        """
        if not self.is_effect or self.effect_unit != "probability" or finding.signed is None or not finding.levels:
            return {}
        codes = {level: code for code, level in enumerate(finding.levels)}
        own = torch.tensor([float(codes.get(level, math.nan)) for level in finding.group])
        here = self.predictions.cpu()
        there = torch.where(finding.abstained, torch.nan, here + finding.signed.cpu().to(here))
        found = flip_sets(here, there, own, cut)
        return {group_name(finding.name, finding.levels[code]): flips for code, flips in found.items()}

    @property
    def effect_by_group(self) -> dict[str, dict[str, float]]:
        """Mean signed contribution of each feature in each group, by `Group.name`.

        Over everyone the signs would cancel. A contribution belongs to the contrast that counts, so the groups of a
        variable are those people whose score it attained.
        """
        effect = self.features.effect
        if effect is None:
            return {}
        means = [effect.by_group(f, self.worst == v, self.weights) for v, f in enumerate(self.findings)]
        return {name: of_features for each in means for name, of_features in each.items()}

    @property
    def readings(self) -> dict[str, dict[str, Reading]]:
        """The direct and the total reading of each protected variable, over all judged people and per group."""
        return {finding.name: finding.readings(self.weights) for finding in self.findings}

    def delta_of(self, group: str) -> float:
        """Return the delta of a group, by `Group.name`: its own where it has one."""
        return self.deltas.get(group, self.delta)

    def over_limits(self, limits: Mapping[str, float]) -> list[str]:
        """Return a sentence for each limit on the share of flagged people that is exceeded.

        Limits are by `Group.name`; the limit of "" is for everyone.
        """
        return [
            f"{name or 'Everyone together'}: {self._share_of(name):.1%} flagged, at most {limit:.1%} allowed."
            for name, limit in limits.items()
            if self._share_of(name) > limit
        ]

    def can_check(self, name: str) -> bool:
        """Return whether anybody of a group ("": of all people) was judged, so that a limit can be checked."""
        return not math.isnan(self._share_of(name))

    def _share_of(self, name: str) -> float:
        """Return the share of flagged people in a group ("": everyone), NaN where nobody is judged."""
        if not name:
            return self.share_flagged if self.judged else math.nan
        for finding in self.findings:
            for group in finding.groups:
                if group.name == name:
                    return group.share_flagged if finding.judges(group.level) else math.nan
        known = ", ".join(f"'{group.name}'" for group in self.groups)
        raise OptionError(f"There is no group '{name}' to hold to a limit; the groups are {known}")

    def _of_worst(self, each: Sequence[Tensor]) -> Tensor:
        """Return the values of the variable that attained the score (N,)."""
        if len(each) == 1:
            return each[0]
        stacked = torch.stack(list(each))  # (V, N)
        return stacked.gather(0, self.worst.to(stacked.device)[None])[0]

    def summary(self) -> str:
        """Return the audit in a dozen lines of plain text, and some for each further protected variable."""
        from fairfox.report.lines import summary_lines

        return "\n".join(summary_lines(self))

    def to_json(self, path: str | Path | None = None) -> str:
        """Return the audit without its people as strict JSON, and write it to `path` when given.

        Numbers that are not finite become null; `schema_version` grows when a field changes its meaning.
        """
        from fairfox.report.summary import summary_json

        text = summary_json(self)
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(text, encoding="utf-8")
        return text

    def scores_table(self) -> pa.Table:
        """Return one row per person: id or row number (from 0), score, readings, interval, flags, reason.

        With several protected variables or more than two classes there are columns for each of them. Abstained
        people have null in every number and flag, but for the doubt, which is written where abstaining was asked for.
        """
        from fairfox.report.scores import scores_table

        return scores_table(self)

    def to_parquet(self, path: str | Path) -> None:
        """Write `scores_table` to a Parquet file."""
        table = self.scores_table()
        with written_whole(Path(path)) as temporary:
            pq.write_table(table, temporary)

    def to_html(self, path: str | Path | None = None, *, rows: object = None) -> str:
        """Return the report, one HTML page that needs nothing beside it, and write it to `path` when given.

        `rows` is the audited table (pandas, polars or Arrow, one row per person in the same order): with it the
        page also shows the raw rows of flagged people.
        """
        from fairfox.report.html import render_report

        page = render_report(self, rows=rows)
        if path is not None:
            with written_whole(Path(path)) as temporary:
                temporary.write_text(page, encoding="utf-8")
        return page

    def to_pandas(self) -> Any:
        """Return `scores_table` as a pandas frame; flags are nullable booleans, so that `frame[frame.flag]` works."""
        pandas = require("pandas", why="to give a result as a frame")
        return self.scores_table().to_pandas(types_mapper={pa.bool_(): pandas.BooleanDtype()}.get)

    def to_polars(self) -> Any:
        """Return `scores_table` as a polars frame."""
        return require("polars", why="to give a result as a frame").from_arrow(self.scores_table())

    @cached_property
    def charts(self) -> Charts:
        """The charts of the report as Altair charts: `result.charts.scores`, `.groups`, `.features` and others."""
        from fairfox.report.charts import Charts

        return Charts(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the verdict, the counts, the groups."""
        from fairfox.report.snippet import result_card

        return result_card(self)

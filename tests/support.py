"""What several tests need: a realistic audit of forty people, made by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.result import AuditResult, FeatureEffect, Features, Group

PEOPLE = 40


def example_table() -> pa.Table:
    """Return the forty people's rows: women and men in turn, three features."""
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "sex": ["Female", "Male"] * (PEOPLE // 2),
            "income": rng.normal(3000, 500, PEOPLE).round(2),
            "job": rng.choice(["clerk", "nurse", "smith"], PEOPLE),
            "age": rng.integers(18, 80, PEOPLE),
        }
    )


def example_result(**changes: Any) -> AuditResult:
    """Return an audit with `rank` at delta 5 points: women would gain about 8 points, men lose about 3.

    People 38 and 39 are abstained. The last ten people were not explained.
    """
    generator = torch.Generator().manual_seed(0)
    female = torch.arange(PEOPLE) % 2 == 0
    signed = torch.where(female, 0.08, -0.03) + 0.03 * torch.randn(PEOPLE, generator=generator)
    abstained = torch.arange(PEOPLE) >= PEOPLE - 2
    signed[abstained] = 0.0
    scores = signed.abs()
    flags = scores > 0.05
    interval = signed[:, None] + torch.tensor([-0.015, 0.015])
    confident = flags & (interval.abs().amin(1) > 0.05)
    per_person = torch.stack([0.7 * signed, 0.3 * signed, 0.0 * signed], dim=1)
    per_person[-10:] = torch.nan
    predictions = torch.where(female, 0.42, 0.58)
    result = AuditResult(
        scores=scores,
        signed=signed,
        interval=interval,
        flags=flags,
        confident_flags=confident,
        abstained=abstained,
        reasons=(None,) * (PEOPLE - 2) + ("no evidence about sex",) * 2,
        predictions=predictions,
        direct=0.4 * signed,
        total=signed,
        counterfactual=torch.zeros(PEOPLE, 5),
        ids=None,
        group=tuple("Female" if one else "Male" for one in female.tolist()),
        alignment_share={"sex": 0.21},
        features=Features(
            proxy={"income": 0.9, "job": 0.35, "age": 0.02},
            effect=FeatureEffect(("income", "job", "age"), per_person, "integrated gradients"),
        ),
        auxiliary=(AuxiliaryQuality("sex", "auc", 0.84, 0.5, 0.49, 0.693, PEOPLE),),
        groups=tuple(
            _group(level, own & ~abstained, signed, predictions, flags, confident)
            for level, own in (("Female", female), ("Male", ~female))
        ),
        delta=0.05,
        test="rank",
        meaning="How much the prediction changes when a person keeps their ranks and joins the other group.",
        unit="change of the prediction (probability)",
        warnings=("The group sex=Male has few people.",),
        settings={"seed": 0, "refits": 5, "versions": {"fairfox": "0.1.0"}, "seconds": 1.5},
    )
    return replace(result, **changes)


def without_sign() -> AuditResult:
    """Return the same audit by a test that knows no direction and no interval."""
    result = example_result()
    groups = tuple(replace(group, mean_signed=None, share_confident=None) for group in result.groups)
    changes: dict[str, Any] = {"signed": None, "interval": None, "confident_flags": None, "counterfactual": None}
    features = replace(result.features, effect=None)
    return replace(
        result, **changes, groups=groups, features=features, test="fta", unit="prediction per standard deviation"
    )


def _group(level: str, own: Any, signed: Any, predictions: Any, flags: Any, confident: Any) -> Group:
    return Group(
        variable="sex",
        level=level,
        people=int(own.sum()),
        mean_prediction=float(predictions[own].mean()),
        mean_signed=float(signed[own].mean()),
        share_flagged=float(flags[own].float().mean()),
        share_confident=float(confident[own].float().mean()),
    )

"""What several tests need: realistic audits of a few people, made by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from inspect import signature
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from click.testing import Result
from torch import Tensor

import fairfox
from fairfox.auxiliary.quality import AuxiliaryQuality
from fairfox.certificates.path import Certificates
from fairfox.fairtests.fitted import FittedTest
from fairfox.findings import AuditRecord, FeatureEffect, Features, Finding, Group

ARGUMENTS = set(signature(fairfox.audit).parameters)
PEOPLE = 40
DELTA = 0.05
RACES = ("Asian", "Black", "Latin", "Other", "White")
BETWEEN = (  # mean effect from each race to each other
    (0.0, -0.02, -0.01, 0.0, 0.01),
    (0.02, 0.0, 0.01, 0.02, 0.06),
    (0.01, -0.01, 0.0, 0.01, 0.04),
    (0.0, -0.02, -0.01, 0.0, 0.01),
    (-0.01, -0.05, -0.03, -0.01, 0.0),
)
AGES = ("18 to 33", "34 to 52", "53 to 80")


def header_of(content: bytes) -> dict[str, Any]:
    """Return what the header of a `.fox` file says: the text behind a checksum of 64 digits."""
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    return json.loads(header["__metadata__"]["fairfox test"][64:])


def audited(model: object, table: object, **given: Any) -> AuditRecord:
    """Return the record of `fairfox.audit` with every option as an argument: further ones go into `options`."""
    return fairfox.audit(model, table, **sorted_options(given)).record


def fitted_on(table: object, **given: Any) -> FittedTest:
    """Return `fairfox.fit` in the same way."""
    return fairfox.fit(table, **sorted_options(given))


def sorted_options(given: dict[str, Any]) -> dict[str, Any]:
    """Return arguments as they are, and all further options under `options`."""
    named = {name: value for name, value in given.items() if name in ARGUMENTS}
    return {**named, "options": {name: value for name, value in given.items() if name not in ARGUMENTS}}


def ended(done: Result, *codes: int) -> Result:
    """Return a command that ended with one of these codes; an audit's say that it passes, fails, or cannot tell."""
    assert done.exit_code in (codes or (0, 1, 3)), done.output
    return done


def refusal_of(done: Result) -> str:
    """Return the one sentence of a command that refused its input, having checked that it said nothing else."""
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("Error: ")
    return done.stderr


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


def example_result(**changes: Any) -> AuditRecord:
    """Return an audit with `rank` at delta 5 points: women would gain about 8 points, men lose about 3.

    People 38 and 39 are abstained. The last ten people were not explained.
    """
    generator = torch.Generator().manual_seed(0)
    female = torch.arange(PEOPLE) % 2 == 0
    signed = torch.where(female, 0.08, -0.03) + 0.03 * torch.randn(PEOPLE, generator=generator)
    signed[-2:] = torch.nan
    finding = make_finding(
        "sex",
        ("Female", "Male"),
        ("Female", "Male"),
        torch.stack([torch.where(female, torch.nan, signed), torch.where(female, signed, torch.nan)], dim=1),
        group=["Female" if one else "Male" for one in female.tolist()],
        predictions=_predictions(female),
        proxy={"income": 0.9, "job": 0.35, "age": 0.02},
        quality=AuxiliaryQuality("sex", "auc", 0.84, 0.5, 0.49, 0.693, PEOPLE),
        alignment_share=0.21,
    )
    assert finding.effect is not None
    per_person = torch.stack([0.7 * finding.effect, 0.3 * finding.effect, 0.0 * finding.effect], dim=1)
    per_person[-10:] = torch.nan
    result = make_result(
        finding,
        reasons=(None,) * (PEOPLE - 2) + ("no evidence about sex",) * 2,
        predictions=_predictions(female),
        counterfactual=torch.zeros(PEOPLE, 5),
        features=Features(
            proxy=finding.proxy, effect=FeatureEffect(("income", "job", "age"), per_person, "integrated gradients")
        ),
        warnings=("The group sex=Male has few people.",),
    )
    return replace(result, **changes)


def example_certificates(result: AuditRecord, *, total: bool = False) -> Certificates:
    """Return certificates of the forty people: everyone's score, and 6 points more for the first three.

    Person 5 has none, as the abstained have none.
    """
    inside = 0.06 * (torch.arange(len(result)) < 3).double()
    gone = result.abstained.clone()
    gone[5] = True
    reasons = ["a category changes on the way" if n == 5 else reason for n, reason in enumerate(result.reasons)]
    return Certificates(
        largest=torch.where(gone, torch.nan, result.scores.double() + inside),
        inside=torch.where(gone, torch.nan, inside),
        reasons=tuple(reasons),
        delta=DELTA,
        limits=torch.full((len(result),), DELTA, dtype=torch.float64),
        total=total,
    )


def with_finding(result: AuditRecord, place: int = 0, **changes: Any) -> AuditRecord:
    """Return the audit with one of its findings changed."""
    findings = list(result.findings)
    findings[place] = replace(findings[place], **changes)
    return replace(result, findings=tuple(findings))


def without_sign() -> AuditRecord:
    """Return the same audit by a test that knows no direction and no interval."""
    result = example_result()
    groups = tuple(replace(group, mean_effect=None, share_confident=None, towards={}) for group in result.groups)
    unsigned: dict[str, Any] = {"effect": None, "interval": None, "confident": None}
    result = replace(
        result,
        **unsigned,
        sampling=None,
        counterfactual=None,
        features=replace(result.features, effect=None),
        test="fta",
        unit="prediction per standard deviation",
    )
    return nameless(with_finding(result, groups=groups, **unsigned))


def nameless(result: AuditRecord) -> AuditRecord:
    """Return the same audit by a test that knows no protected variable."""
    people = len(result)
    for place in range(len(result.findings)):
        nowhere: dict[str, Any] = {"effects": torch.zeros(people, 0), "towards": (None,) * people}
        result = with_finding(result, place, contrasts=(), is_own=False, **nowhere)
    return result


def many_result(**changes: Any) -> AuditRecord:
    """Return an audit of 200 people for sex (2 classes), race (5) and age (a number) at once.

    Black and Latin people would gain as White, and White people lose as Black. Nobody knows the race of the first
    twenty (inferred) nor the age of every fiftieth; the last four people are abstained. "Other" puts two rare classes
    together, and race=Black has its own delta.
    """
    people = 200
    rng = torch.Generator().manual_seed(1)
    rows = torch.arange(people)
    sex, race, age = rows % 2, rows % 5, (rows * 7) % 3
    noise = 0.01 * torch.randn(people, 9, generator=rng)
    away = rows >= people - 4
    effects = {
        "sex": 0.02 * torch.tensor([[-1.0, 1.0]]) + noise[:, :2],
        "race": torch.tensor(BETWEEN)[race] + noise[:, 2:7],
        "age": torch.stack([0.015 + 0.025 * (age == 2), 0.01 + 0.0 * age], dim=1) + noise[:, 7:],
    }
    for name, own in (("sex", sex), ("race", race)):
        effects[name][rows, own] = torch.nan
    for each in effects.values():
        each[away] = torch.nan
    effects["age"][::50] = torch.nan
    weights = 1.0 + (rows % 4)
    delta = torch.where(race == 1, 0.03, DELTA)
    predictions = 0.3 + 0.1 * sex + 0.05 * (race == 4) + 0.02 * age
    common: dict[str, Any] = {"predictions": predictions, "weights": weights, "delta": delta}
    levels = {"sex": ("Female", "Male"), "race": RACES}
    findings = (
        make_finding(
            "sex", levels["sex"], levels["sex"], effects["sex"], group=[levels["sex"][k] for k in sex.tolist()],
            proxy={"income": 0.9, "job": 0.35, "hours": 0.02}, alignment_share=0.04,
            quality=AuxiliaryQuality("sex", "auc", 0.84, 0.5, 0.49, 0.693, people), **common,
        ),
        make_finding(
            "race", RACES, RACES, effects["race"], group=[RACES[k] for k in race.tolist()], inferred=rows < 20,
            proxy={"postcode": 1.4, "income": 0.4, "job": 0.1}, alignment_share=0.17,
            quality=AuxiliaryQuality("race", "auc", 0.71, 0.5, 1.2, 1.61, people),
            merged={"Other": ("Eskimo", "Inuit")}, **common,
        ),
        make_finding(
            "age", (), ("age + 13.6", "age - 13.6"), effects["age"],
            group=[AGES[k] if n % 50 else "unknown" for n, k in enumerate(age.tolist())],
            proxy={"hours": 0.3, "income": 0.2}, alignment_share=0.09,
            quality=AuxiliaryQuality("age", "r2", 0.31, 0.0, 0.69, 1.0, people), **common,
        ),
    )  # fmt: skip
    worst = torch.stack([finding.scores for finding in findings]).argmax(0)
    signed = torch.stack([finding.effect for finding in findings if finding.effect is not None])
    taken = signed.gather(0, worst[None])[0]
    per_person = torch.stack([0.6 * taken, 0.3 * taken, 0.1 * taken, 0.0 * taken], dim=1)
    per_person[away] = torch.nan
    result = make_result(
        *findings,
        reasons=(None,) * (people - 4) + ("no evidence about race",) * 4,
        predictions=predictions,
        counterfactual=torch.zeros(people, 5),
        features=Features(
            proxy={"postcode": 1.4, "income": 0.9, "job": 0.35, "hours": 0.3},  # the strongest of each
            effect=FeatureEffect(("postcode", "income", "job", "hours"), per_person, "any", weights=weights),
        ),
        warnings=("The group race=Other has few people.",),
    )
    settings = {**result.settings, "max_flagged": {"": 0.6, "race=Black": 0.5}}
    result = replace(result, weights=weights, deltas={"race=Black": 0.03}, settings=settings)
    return replace(result, **changes)


def make_finding(
    name: str,
    levels: tuple[str, ...],
    contrasts: tuple[str, ...],
    effects: Tensor,
    *,
    group: list[str],
    predictions: Tensor,
    inferred: Tensor | None = None,
    weights: Tensor | None = None,
    delta: Tensor | float = DELTA,
    **more: Any,
) -> Finding:
    """Return what an audit finds where these are the effects of every contrast (N, Q)."""
    abstained = effects.isnan().all(1)
    scores, place = effects.abs().nan_to_num(nan=-1.0).max(1)
    scores = torch.where(abstained, 0.0, scores)
    signed = torch.where(abstained, 0.0, effects.gather(1, place[:, None])[:, 0])
    interval = signed[:, None] + torch.tensor([-0.015, 0.015])
    flags = ~abstained & (scores > delta)
    confident = flags & (interval.abs().amin(1) > delta)
    inferred = torch.zeros(len(effects), dtype=torch.bool) if inferred is None else inferred
    weight = torch.ones(len(effects)) if weights is None else weights

    def mean(values: Tensor, of: Tensor) -> float:
        return float((values[of] * weight[of]).sum() / weight[of].sum())

    groups = []
    for level in dict.fromkeys(levels or sorted(own for own in group if own != "unknown")):
        own = torch.tensor([each == level for each in group]) & ~abstained
        towards = {to: (effects[:, q], own & ~effects[:, q].isnan()) for q, to in enumerate(contrasts)}
        groups.append(
            Group(
                variable=name, level=level, people=int(own.sum()), mean_prediction=mean(predictions, own),
                mean_effect=mean(signed, own), share_flagged=mean(flags.float(), own),
                share_confident=mean(confident.float(), own), inferred=int((own & inferred).sum()),
                towards={to: mean(value, of) for to, (value, of) in towards.items() if of.any()},
            )
        )  # fmt: skip
    words = [None if gone else contrasts[q] for q, gone in zip(place.tolist(), abstained.tolist(), strict=True)]
    return Finding(
        name=name, kind="continuous" if not levels else "binary" if len(levels) == 2 else "categorical",
        levels=levels, contrasts=contrasts, effects=effects, scores=scores, effect=signed, interval=interval,
        flagged=flags, confident=confident, abstained=abstained, towards=tuple(words), group=tuple(group),
        inferred=inferred, direct=0.4 * signed, total=signed.clone(), alignment_error=0.01, groups=tuple(groups),
        **more,
    )  # fmt: skip


def make_result(*findings: Finding, **more: Any) -> AuditRecord:
    """Return the worst case over findings, as the test `rank` gives it."""
    worst = torch.stack([finding.scores for finding in findings]).argmax(0)

    def taken(each: list[Any]) -> Tensor:
        stacked = torch.stack(each)  # (V, N, ...)
        return stacked[worst, torch.arange(len(worst))]

    abstained = torch.stack([finding.abstained for finding in findings]).all(0)
    return AuditRecord(
        scores=taken([finding.scores for finding in findings]),
        effect=taken([finding.effect for finding in findings]),
        interval=taken([finding.interval for finding in findings]),
        sampling=taken([finding.effect for finding in findings])[:, None] + torch.tensor([-0.01, 0.01]),
        flagged=torch.stack([finding.flagged for finding in findings]).any(0),
        confident=taken([finding.confident for finding in findings]),
        abstained=abstained,
        worst=worst,
        findings=findings,
        ids=None,
        encoded=torch.arange(len(worst))[:, None].expand(-1, 5).float(),  # person n has the value n everywhere
        delta=DELTA,
        test="rank",
        meaning="How much the prediction changes when a person keeps their ranks and joins the other group.",
        unit="change of the prediction (probability)",
        settings={"seed": 0, "refits": 5, "versions": {"fairfox": "0.1.0"}, "seconds": 1.5},
        **more,
    )


def _predictions(female: Tensor) -> Tensor:
    return torch.where(female, 0.42, 0.58)

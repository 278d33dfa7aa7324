"""The question of an audit: its options as they were given, checked before any work is done."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

from fairfox.comparison import ALL, options_by_test
from fairfox.data.contrasts import CONTRASTS
from fairfox.errors import OptionError
from fairfox.fairtests.registry import (
    EFFECT,
    UNFITTED,
    About,
    about,
    check_auditable,
    check_direction,
    check_holding,
    check_legitimate,
    check_options,
)
from fairfox.models.description import Kind
from fairfox.models.output import Returns, Wanted

_LEAST = {"seed": 0, "refits": 1, "folds": 2, "batch_size": 1, "null": 0}  # whole numbers
_CHOICES: dict[str, tuple[str | None, ...]] = {
    "contrasts": CONTRASTS,
    "output": ("probability", "logit"),
    "returns": (None, "probability", "logit", "value"),
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """The options of an audit as they were given, and what follows from them; `fairfox.audit` says what each means."""

    protected: str | Sequence[str]
    label: str | None
    test: str
    options: Mapping[str, object] | None
    delta: float | None
    deltas: Mapping[str, float] | None
    limits: Mapping[str, float] | None
    intersections: bool
    hold_others: bool
    legitimate: str | Sequence[str]
    reference_group: str | Sequence[str] | None
    contrasts: str
    merge_rare: float | None
    on: str | None
    weights: str | None
    seed: int
    categorical: Sequence[str]
    continuous: Sequence[str]
    drop: Sequence[str]
    columns: Sequence[str] | None
    id: str | None
    positive: Any
    output: Wanted
    returns: Returns | None
    kind: Kind | None
    refits: int
    folds: int
    batch_size: int
    certify: bool = False
    abstain: float | None = None
    fdr: float = 0.1
    decision_threshold: float | None = None
    null: int = 0
    delta_from_null: bool = False
    next_steps: bool | None = None

    def __post_init__(self) -> None:
        self._check_test()
        self._check_protected()
        self._check_groups()
        self._check_values()
        self._check_comparisons()
        self._check_abstaining()
        self._check_certainty()

    @property
    def several(self) -> bool:
        """Whether every test that applies is asked for."""
        return self.test == ALL

    @property
    def main(self) -> str:
        """The test whose scores everyone gets."""
        return "rank" if self.several else self.test

    @property
    def about(self) -> About:
        """What the main test's number means."""
        return about(self.main, None if self.several else self.options)

    @cached_property
    def options_by_test(self) -> Mapping[str, Mapping[str, object]]:
        """The settings of each test that has any."""
        return options_by_test(self.options) if self.several else {self.main.removesuffix("/a"): self.options or {}}

    @property
    def specs(self) -> list[str]:
        """The protected columns, or cuts through them."""
        return [self.protected] if isinstance(self.protected, str) else list(self.protected)

    @property
    def legitimate_names(self) -> list[str]:
        """The legitimate columns, each once."""
        given = [self.legitimate] if isinstance(self.legitimate, str) else self.legitimate
        return list(dict.fromkeys(given))

    @property
    def named(self) -> dict[str, list[str] | None]:
        """The groups and columns that were named for a purpose, by the option's name; None where none were."""
        options = ("reference_group", "categorical", "continuous", "drop")
        given = {option: getattr(self, option) or () for option in options}
        return {
            option: [names] if isinstance(names, str) else [str(name) for name in names] or None
            for option, names in given.items()
        }

    def _check_test(self) -> None:
        _ = self.about  # refuses a test that there is not
        check_auditable(self.main)
        check_options(self.main, None if self.several else self.options)
        _ = self.options_by_test  # refuses settings that no test has

    def _check_protected(self) -> None:
        given: object = self.protected
        if not isinstance(given, Sequence) or not all(isinstance(text, str) for text in given):
            raise OptionError(
                f"protected is {given!r}; expected a column name, a cut such as 'age<25', or a list of them"
            )

    def _check_groups(self) -> None:
        """Refuse what is no number for single groups, no column of weights, or no share of the people."""
        for name, given in (("deltas", self.deltas), ("limits", self.limits)):
            if given is not None and not _is_by_group(given):
                raise OptionError(f"{name} is {given!r}; expected numbers by group, such as {{'Female': 0.03}}")
        if self.weights is not None and not isinstance(self.weights, str):
            raise OptionError("weights must be the name of a column; add the weights to the table as one")
        single: list[tuple[str, object]] = [(f"delta of '{group}'", own) for group, own in (self.deltas or {}).items()]
        for name, value in [("delta", self.delta), *single]:
            if value is not None and not (isinstance(value, Real) and 0 <= float(value) < math.inf):
                raise OptionError(f"{name} is {value!r}; expected a number of at least 0")
        for group, share in (self.limits or {}).items():
            if not (isinstance(share, Real) and 0 <= float(share) <= 1):
                raise OptionError(f"the limit of '{group or 'everyone'}' is {share!r}; expected a share from 0 to 1")
        rare: object = self.merge_rare
        if rare is not None and not (isinstance(rare, Real) and 0 < float(rare) < 0.5):
            raise OptionError(f"merge_rare is {rare!r}; expected a share of the people above 0 and below 0.5")

    def _check_values(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if not isinstance(value, Integral) or int(value) < least:
                raise OptionError(f"{name} is {value!r}; expected a whole number of at least {least}")
        for name, known in _CHOICES.items():
            value = getattr(self, name)
            if value not in known:
                expected = " or ".join(repr(k) for k in known if k is not None)
                raise OptionError(f"{name} is {value!r}; expected {expected}")

    def _check_comparisons(self) -> None:
        if self.reference_group:
            check_direction(self.main)
        self._check_legitimate()
        if self.hold_others:
            check_holding(self.main)
            if len(self.specs) < 2:
                raise OptionError(
                    "hold_others (--hold-others) needs at least two protected variables; name another one"
                )

    def _check_legitimate(self) -> None:
        given: object = self.legitimate
        if not isinstance(given, Sequence) or not all(isinstance(name, str) and name for name in given) or given == "":
            raise OptionError(f"legitimate is {given!r}; expected a column name, or a list of them")
        if self.label is not None and self.label in self.legitimate_names:
            raise OptionError(
                f"'{self.label}' is the label and cannot be legitimate, as no model takes it; name columns of the model"
            )
        if given:
            check_legitimate(self.main)

    def _check_certainty(self) -> None:
        fdr, cut = self.fdr, self.decision_threshold
        if not (isinstance(fdr, Real) and 0 < float(fdr) < 1):
            raise OptionError(f"fdr is {fdr!r}; expected the share of a list that may be wrong, such as 0.1")
        if cut is not None:
            if not (isinstance(cut, Real) and math.isfinite(float(cut))):
                raise OptionError(
                    f"decision_threshold is {cut!r}; expected the prediction from which on people get a yes"
                )
            if self.delta is not None or self.deltas or self.delta_from_null:
                raise OptionError(
                    "A decision threshold says how large an effect counts, and so does delta; give one of the two"
                )
            if self.about.unit != EFFECT:
                raise OptionError(
                    f"A decision threshold needs effects on the prediction, which '{self.main}' does not measure; "
                    "take rank, or leave decision_threshold (--decision-threshold) out"
                )
        if self.delta_from_null and (not self.null or self.delta is not None):
            raise OptionError(
                "Delta comes from shuffled protected values only where these are asked for and no delta is given: "
                "add null=5 (--null 5), and leave delta out"
            )

    def _check_abstaining(self) -> None:
        share: object = self.abstain
        if share is None:
            return
        if isinstance(share, bool) or not (isinstance(share, Real) and 0 <= float(share) < 1):
            raise OptionError(f"abstain is {share!r}; expected a share of the people from 0 (nobody) to below 1")
        if self.refits < 2:
            raise OptionError(
                f"refits is {self.refits}, and abstain (--abstain) needs at least 2, since it leaves out whom they "
                "disagree about; set refits=5 (--refits 5)"
            )
        if self.main in UNFITTED:
            raise OptionError(
                f"{self.main} learns nothing, so that no re-fits can disagree; leave abstain (--abstain) out, or use "
                "rank, move or faux"
            )
        if self.delta == 0:
            raise OptionError(
                "delta is 0, and abstain (--abstain) holds disagreement against it; give the smallest score that counts"
            )


def _is_by_group(given: object) -> bool:
    return isinstance(given, Mapping) and all(isinstance(group, str) for group in given)

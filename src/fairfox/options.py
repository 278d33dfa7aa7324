"""The options of an audit, each declared, documented and checked once.

The command line, the recorded settings, the printed call and `fit`, `score` and `compare` derive from what is declared
here. Nothing heavy is imported, so that `fairfox audit --help` is instant.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Literal, cast

from fairfox.choices.kinds import Anything, Choice, Flag, Kind, Names, Number, Settings, Text
from fairfox.choices.tests import ALL, EFFECT, FAIR_TESTS, TOTAL, TestInfo, lookup_test
from fairfox.errors import OptionError, did_you_mean

EVERYONE = ""  # the group of all people, where numbers are given by group
DATA, PROTECTED, RULE = "Data", "Protected groups", "Decision rule"  # sections of options
ESTIMATION, MODEL, OUTPUT = "Test and estimates", "Model", "Output"
SECTIONS = (DATA, PROTECTED, RULE, ESTIMATION, MODEL, OUTPUT)


def option(kind: Kind, default: Any, section: str, metavar: str | None, help: str, *, common: bool = False) -> Any:
    """Return the dataclass field of an option; `fairfox audit --help` has the common ones, by section."""
    made = {"default_factory": dict} if default == {} else {"default": default}
    about = {"kind": kind, "help": help, "metavar": metavar, "section": section, "common": common}
    return field(**made, metadata=about)


def split_names(text: str) -> list[str]:
    """Return the names in a text with commas between them; quotes keep a comma that belongs to a name.

    Example:
        >>> split_names('income, age,"debt, total"')
        ['income', 'age', 'debt, total']
    """
    if "," not in text:
        return [text.strip()]
    return [name.strip() for name in next(csv.reader([text], skipinitialspace=True))]


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How the table is read."""

    id: str | None = option(
        Text(), None, DATA, "COL", "Column that identifies people. Without it, row numbers from 0 do.", common=True
    )
    categorical: tuple[str, ...] = option(Names(), (), DATA, "COL,...", "Columns to read as categories.")
    continuous: tuple[str, ...] = option(Names(), (), DATA, "COL,...", "Columns to read as numbers.")
    drop: tuple[str, ...] = option(Names(), (), DATA, "COL,...", "Columns to ignore.")
    intersections: bool = option(
        Flag(), False, PROTECTED, None, "Also compare intersections of the protected groups, such as Female & Black."
    )
    merge_rare: float | None = option(
        Number(0, 0.5, low_open=True, high_open=True), None, PROTECTED, "SHARE",
        "Merge groups that hold a smaller share of the people than this.",
    )  # fmt: skip
    protected_from: Any = option(
        Anything(is_table=True), None, PROTECTED, "TABLE", "Another table that has the protected columns; needs on."
    )
    on: str | None = option(
        Text(), None, PROTECTED, "COL", "Column that identifies people in both tables. The model does not receive it."
    )


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """How the model is called, and what it returns."""

    positive: Any = option(Anything(), None, MODEL, "CLASS", "Class whose prediction is audited.")
    output: Literal["probability", "logit"] = option(
        Choice(("probability", "logit")), "probability", MODEL, None, "Audit the probability or its log-odds."
    )
    returns: Literal["probability", "logit", "value"] | None = option(
        Choice(("probability", "logit", "value")), None, MODEL, None, "What the model returns, if that is not clear."
    )
    kind: Literal["table", "matrix", "encoded"] | None = option(
        Choice(("table", "matrix", "encoded")), None, MODEL, None,
        "What the model receives: a table, a matrix of numbers, or fairfox's own encoding.",
    )  # fmt: skip
    batch_size: int = option(Number(1, whole=True), 4096, MODEL, "N", "Rows in one call of the model.")


@dataclass(frozen=True, kw_only=True)
class EstimationOptions:
    """How effects are estimated, and who is compared with whom."""

    refits: int = option(
        Number(1, whole=True), 5, ESTIMATION, "N",
        "How many times maps and auxiliary models are fitted. The spread of the refits gives the intervals.",
    )  # fmt: skip
    folds: int = option(
        Number(2, whole=True), 5, ESTIMATION, "N", "Folds of the cross-fitting, if there is no reference."
    )
    contrasts: Literal["largest", "all"] = option(
        Choice(("largest", "all")), "largest", PROTECTED, None,
        "With more than two groups: compare everyone with the largest group (its members with the second "
        "largest), or with every other group.",
    )  # fmt: skip
    reference_group: tuple[str, ...] = option(
        Names("a group such as 'White' or 'race=White'", commas=False), (), PROTECTED, "GROUP",
        "Compare every group with this one only: White, or race=White. One per protected variable.",
    )  # fmt: skip
    hold_others: bool = option(
        Flag(), False, PROTECTED, None, "Compare with people who have the same values of the other protected variables."
    )
    persistence: float = option(
        Number(0, 1), 0.9, ESTIMATION, "R",
        "How well people's ranks carry over to the other group, as a correlation: intervals allow for it (rank, "
        "counterfactual). 1 means exactly.",
    )  # fmt: skip
    max_minutes: float = option(
        Number(0, low_open=True), 5.0, ESTIMATION, "M",
        "With test all, and for alternatives: about how long it may take. What would take longer is skipped and named.",
    )  # fmt: skip
    gate: bool = option(
        Flag(), True, ESTIMATION, None, "Change a feature only if the groups differ in it by more than chance (rank)."
    )
    direct: bool | None = option(
        Flag(chosen=True), None, ESTIMATION, None,
        "Also measure the direct effect: the smallest edit of a person that changes the protected variable. On by"
        " default for models with gradients; for others it takes many predictions.",
    )  # fmt: skip
    balance: bool | None = option(
        Flag(chosen=True), None, ESTIMATION, None,
        "Train auxiliary models on data in which label and protected variable are independent. By default only "
        "those of the alignment share, and only with a label.",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """What is reported."""

    fdr: float = option(
        Number(0, 1, low_open=True, high_open=True, share=True), 0.1, RULE, "SHARE",
        "False discovery rate of the list of significant people.",
    )  # fmt: skip
    null: int = option(
        Number(0, whole=True), 0, RULE, "N",
        "Repeat the audit this many times with shuffled protected values, to see what chance alone gives.",
    )  # fmt: skip
    delta_from_null: bool = option(
        Flag(), False, RULE, None, "Use as delta the 95th percentile of the effects under shuffled protected values."
    )
    certify: bool = option(
        Flag(), False, OUTPUT, None,
        "Also prove bounds on the prediction between a person and their counterfactual row. For ReLU networks and"
        " tree ensembles.",
    )  # fmt: skip
    owner: str | None = option(
        Text(most=200), None, OUTPUT, "TEXT", "Who answers for the model and the limits. Shown on the page to sign."
    )
    reason: str | None = option(
        Text(most=2_000), None, OUTPUT, "TEXT",
        "What the model is for, and why these limits were chosen. Shown on the page to sign.",
    )  # fmt: skip


OF_VERDICT = (*(f.name for f in fields(ReportOptions)), "delta", "max_flagged", "decision_threshold")
NOT_OF_FIT = (*OF_VERDICT, "on", "folds", "max_minutes")  # what says nothing about a fit, a repair, alternatives:
NOT_OF_REPAIR = tuple(name for name in (*NOT_OF_FIT, "test", "settings") if name != "decision_threshold")
NOT_OF_ALTERNATIVES = (*(n for n in OF_VERDICT if n != "delta"), "test", "settings", "folds", "refits")


@dataclass(frozen=True, kw_only=True)
class AuditOptions(TableOptions, ModelOptions, EstimationOptions, ReportOptions):
    """Every option of an audit, checked when it is made.

    Example:
        >>> AuditOptions(protected=["sex", "race"], max_flagged=0.1).protected
        ('sex', 'race')
    """

    protected: tuple[str, ...] = option(
        Names("a column name, a cut such as 'age<25'", commas=False), (), PROTECTED, "COL",
        "Protected column, or a cut such as 'age<25'; or several. The model does not receive it unless it is one "
        "of its columns.", common=True,
    )  # fmt: skip
    label: str | None = option(
        Text(), None, DATA, "COL", "Column with the true outcome. The model does not receive it.", common=True
    )
    test: str = option(
        Text(), "rank", ESTIMATION, "T",
        "Fairness test, see fairfox.FAIR_TESTS. all: rank, and every other test that applies and is not slow.",
    )  # fmt: skip
    settings: dict[str, Any] = option(
        Settings(), {}, ESTIMATION, "NAME=VALUE",
        "Settings of the test, such as epsilon=0.5 for fta; with test all, fliptest.steps=5000.",
    )  # fmt: skip
    delta: Any = option(
        Number(0, by_group=True), None, RULE, "[GROUP=]D",
        "Smallest effect that counts, 0.05 for 5 points; also by group. By default the test's own.", common=True,
    )  # fmt: skip
    max_flagged: Any = option(
        Number(0, 1, by_group=True, share=True), None, RULE, "[GROUP=]SHARE",
        "Limit: the largest share of people that may be over delta, 0.1 for 10 %; also by group. By default 0.05.",
        common=True,
    )  # fmt: skip
    given: tuple[str, ...] = option(
        Names(), (), PROTECTED, "COL,...",
        "Treats these columns as valid business reasons: people are compared with others who have the same "
        "values.", common=True,
    )  # fmt: skip
    columns: tuple[str, ...] | None = option(
        Names(), None, DATA, "COL,...",
        "Columns the model takes, in its order. By default its own feature names, else every column without "
        "another role.", common=True,
    )  # fmt: skip
    weights: str | None = option(Text(), None, DATA, "COL", "Column with the number of people that a row stands for.")
    decision_threshold: float | None = option(
        Number(), None, RULE, "P",
        "Flag people whose decision would change, whatever the size of the effect. The decision is yes from this "
        "prediction on.", common=True,
    )  # fmt: skip
    seed: int = option(Number(0, 2**32 - 1, whole=True), 0, ESTIMATION, "N", "Seed of all random numbers.")

    @classmethod
    def of(cls, options: object = None, **named: Any) -> AuditOptions:
        """Return the options given by name, and the others as a mapping or as groups such as `TableOptions`."""
        more = further_options(options)
        twice = next((name for name in more if name in named), None)
        if twice is not None:
            raise OptionError(f"'{twice}' is an argument of its own; give {twice}=... and remove it from options")
        refuse_unknown(more)
        return cls(**named, **more)

    def __post_init__(self) -> None:
        for f in fields(self):
            object.__setattr__(self, f.name, f.metadata["kind"].check(f.name, getattr(self, f.name)))
        self._check_test()
        self._check_comparisons()
        self._check_delta()

    @property
    def runs_all(self) -> bool:
        """Whether every test that applies is asked for."""
        return self.test == ALL

    @property
    def main(self) -> str:
        """The test whose scores everyone gets."""
        return TOTAL if self.runs_all else self.test

    @property
    def info(self) -> TestInfo:
        """What the main test measures."""
        return lookup_test(self.main, None if self.runs_all else self.settings)

    @property
    def delta_for_all(self) -> float | None:
        """The delta of everyone; None: the test's own."""
        return self.delta.get(EVERYONE) if isinstance(self.delta, Mapping) else cast(float | None, self.delta)

    @property
    def delta_by_group(self) -> dict[str, float]:
        """The deltas of single groups, by the names that were given."""
        return {g: d for g, d in self.delta.items() if g != EVERYONE} if isinstance(self.delta, Mapping) else {}

    @property
    def limits(self) -> dict[str, float]:
        """The largest shares of flagged people, by the names of groups that were given; "" is everyone."""
        if isinstance(self.max_flagged, Mapping):
            return dict(self.max_flagged)
        return {} if self.max_flagged is None else {EVERYONE: self.max_flagged}

    def scoring(self, options: object = None, **named: Any) -> AuditOptions:
        """Return the options of a fitted test with those of scoring: how the model is called, what is reported."""
        more = further_options(options)
        allowed = {f.name for group in (ModelOptions, ReportOptions) for f in fields(group)}
        refuse_unknown(more)
        for name in more:
            if name in ("null", "delta_from_null"):
                raise OptionError(
                    f"{name} fits a test for each shuffle, so it is for fairfox.audit alone; leave it out"
                )
            if name not in allowed:
                raise OptionError(f"{name} is decided when a test is fitted; fit another test with it (fairfox fit)")
        return replace(self, **named, **more)

    def without(self, names: Iterable[str], what: str) -> AuditOptions:
        """Return itself, or raise where one of these options is given: what is made would ignore it."""
        for f in fields(self):
            if f.name in names and getattr(self, f.name) != ({} if f.default is MISSING else f.default):
                raise OptionError(f"{f.name} says nothing about {what}; leave it out")
        return self

    def recorded(self) -> dict[str, Any]:
        """Return every option as plain values for files; tables only as whether there was one."""
        out: dict[str, Any] = {}
        for f in fields(self):
            value, kind = getattr(self, f.name), f.metadata["kind"]
            if isinstance(kind, Anything) and value is not None:
                value = True if kind.is_table else str(value)
            elif isinstance(kind, Settings):
                value = {name: str(own) for name, own in value.items()} or None
            out[f.name] = list(value) or None if isinstance(value, tuple) else value
        return out

    def _check_test(self) -> None:
        if self.info.needs_truth:
            raise OptionError(
                f"{self.main} needs true counterfactuals, which only generated data has; "
                "use rank to audit a table of people"
            )
        if not self.protected:
            raise OptionError("No protected variable is given; name a column, as in protected='sex' (--protected sex)")

    def _check_comparisons(self) -> None:
        if self.reference_group:
            check_compares(self.main)
        if self.given:
            check_given(self.main)
        if self.balance and self.label is None:
            raise OptionError("balance needs the label; name its column (label=..., --label)")
        if self.hold_others:
            check_holds(self.main)
            if len(self.protected) < 2:
                raise OptionError(
                    "hold_others (--hold-others) needs at least two protected variables; name another one"
                )
        if (self.protected_from is None) != (self.on is None):
            raise OptionError(
                "Protected values from another table need both the table (protected_from, --protected-from) and the "
                "column that identifies people in both tables (on, --on)"
            )

    def _check_delta(self) -> None:
        if self.decision_threshold is not None:
            if self.delta is not None or self.delta_from_null:
                raise OptionError("A decision threshold and delta both say which effects count; give only one of them")
            if self.info.unit != EFFECT:
                raise OptionError(
                    f"A decision threshold needs effects on the prediction, which '{self.main}' does not measure; "
                    "use rank, or omit decision_threshold (--decision-threshold)"
                )
        if self.delta_from_null and (not self.null or self.delta_for_all is not None):
            raise OptionError(
                "delta_from_null needs shuffled protected values and no other delta; add null=5 (--null 5) and omit "
                "delta"
            )


GROUPS = (TableOptions, ModelOptions, EstimationOptions, ReportOptions)


def check_compares(test: str) -> None:
    """Refuse a reference group for a test that compares with no group."""
    if not lookup_test(test).compares:
        raise OptionError(f"{test} does not compare groups; use rank, move or faux with a reference group")


def check_holds(test: str) -> None:
    """Refuse to hold other protected variables equal with a test that cannot."""
    if not lookup_test(test).holds:
        raise OptionError(f"{test} cannot hold the other protected variables equal; use rank, move or faux")


def check_given(test: str) -> None:
    """Refuse given columns for a test that cannot hold them equal."""
    if lookup_test(test).needs_graph:
        raise OptionError(
            f"{test} takes no given columns, since the graph says what acts on what; remove the edges into "
            "them, or use rank"
        )
    if not lookup_test(test).gives:
        raise OptionError(f"{test} takes no given columns; use rank with given (--given)")


def refuse_unknown(names: Iterable[str], *also: str) -> None:
    """Refuse names that are not options; `also` may be meant."""
    known = {f.name for f in fields(AuditOptions)}
    for name in names:
        if name not in known:
            own = did_you_mean(name, sorted({*known, *also}))
            raise OptionError(
                f"'{name}' is not an option.{own} Settings of a test go into settings={{'{name}': ...}} (--settings)"
            )


def refuse_outside(names: Mapping[str, object], *own: str) -> None:
    """Refuse unknown arguments: further options of an audit go into `options`, `own` ones may be meant."""
    refuse_unknown(names, *own)
    for name, value in names.items():
        raise OptionError(f"{name} is not an argument; give it in options, as in options={{{name!r}: {value!r}}}")


def further_options(options: object) -> dict[str, Any]:
    """Return the options in a mapping, a group of options, or several of these, by name."""
    if options is None:
        return {}
    if isinstance(options, Mapping):
        return dict(options)
    if isinstance(options, GROUPS):
        return {f.name: getattr(options, f.name) for f in fields(options)}
    if isinstance(options, list | tuple):
        return {name: value for group in options for name, value in further_options(group).items()}
    raise OptionError(
        f"options is {options!r}; expected options by name, such as {{'refits': 10}}, or groups of options, such as "
        "fairfox.TableOptions(drop='zip')"
    )


def defaults_sha256() -> str:
    """Return the hash of all defaults, of options and of tests: results with the same one were made by the same."""
    own = {f.name: repr(f.default) for f in fields(AuditOptions) if f.default is not MISSING}
    return sha256(repr((sorted(own.items()), sorted(FAIR_TESTS.items()))).encode()).hexdigest()

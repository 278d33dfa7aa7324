"""repair(model, table, ...): a model corrected so that people and their counterfactual rows get nearly the same."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset, empty_blocks
from fairfox.data.files import file_sha256
from fairfox.data.table import Table, is_level, load_table
from fairfox.errors import ColumnError, FileError, OptionError
from fairfox.fairtests.correction import Correction
from fairfox.fairtests.fitted import FittedTest
from fairfox.fairtests.inputs import HALF, ask_table, cut_of, read_model, read_people
from fairfox.fairtests.storage import load_correction, save_test
from fairfox.models.adapters import BlackBoxModel, describe
from fairfox.models.protocol import Description, Output, Returns, TargetModel, check_predictions, predict
from fairfox.options import NOT_OF_REPAIR, AuditOptions, refuse_outside
from fairfox.pipeline import fit_with
from fairfox.remedies.learning import check_repairable, fit_correction

_log = logging.getLogger("fairfox")
UNLAWFUL = (
    "The repaired model takes the protected column as an input. In lending, hiring and some other fields this may be "
    "unlawful; ask your lawyers first."
)


@dataclass(frozen=True, repr=False)
class RepairedModel:
    """A model with its repair: it predicts from tables, and `fairfox.audit` takes it as a model.

    Example:
        >>> import pyarrow as pa
        >>> people = pa.table({"sex": ["f", "m"] * 50, "income": [float(i + 20 * (i % 2)) for i in range(100)]})
        >>> fair = repair(lambda table: table["income"] / 120, people, protected="sex")
        >>> fair.predict_proba(people).shape
        (100, 2)
    """

    model: object
    correction: Correction

    def predict_proba(self, table: object) -> np.ndarray:
        """Return the probabilities (N, 2) of a no and of a yes, for a pandas, polars or pyarrow table or a file."""
        if self._unit != "probability":
            raise OptionError(f"This model predicts a {self._unit}, not a probability; use predict")
        yes = self._warned(table)
        return np.stack([1 - yes, yes], axis=1)

    def predict(self, table: object) -> np.ndarray:
        """Return the classes (N,), yes from the threshold on; the numbers themselves of a model that predicts such."""
        scores = self._warned(table)
        if self._unit != "probability":
            return scores
        no, yes = self._classes or [0, 1]
        classes = np.asarray([no, yes], dtype=None if type(no) is type(yes) else object)
        classes = classes[::-1] if self._first_is_yes else classes
        cut = HALF if self.correction.threshold is None else self.correction.threshold
        return np.asarray(classes[(scores >= cut).astype(int)])

    def scores(self, table: object) -> tuple[np.ndarray, np.ndarray]:
        """Return the prediction (N,) for the rows of a table, and who (N,) bool gets the model's own: people with a
        category that the repair has not seen."""
        people = load_table(table)
        correction = self.correction
        target, data, here = _asked(self.model, correction.test, people, correction.use_protected)
        unseen = empty_blocks(data)
        out = torch.where(unseen, here, correction.predict(target, data, here).to(here))
        return out.double().numpy(force=True), unseen.numpy(force=True)

    def _warned(self, table: object) -> np.ndarray:
        out, unseen = self.scores(table)
        if unseen.any():
            _log.warning(
                f"{unseen.sum():,} of {len(out):,} people have a category that the repair has not seen; they get the "
                "model's own prediction."
            )
        return out

    def describe(self) -> Description:
        """Return how the model is called: with a table of its own columns, and the protected ones if it uses them."""
        encoding = self.correction.test.encoding
        sources = encoding.sources if self.correction.use_protected else ()
        names = tuple(dict.fromkeys([*encoding.columns, *(n for source in sources for n in source.columns)]))
        categories = frozenset(f.name for f in encoding.features if f.kind == "categorical")
        read = Output(self._unit, self._options.output, 0 if self._first_is_yes else None)  # as the model itself
        cut = self.correction.threshold
        return Description(
            lambda table: read(torch.as_tensor(self.scores(table)[0])).numpy(), "table", returns=self._unit,
            classes=self._classes, names=names, as_category=categories,
            threshold=None if cut is None else float(read(torch.tensor([cut], dtype=torch.float64))),
            repaired_with=self.correction.test.fitted_on,
        )  # fmt: skip

    def __repr__(self) -> str:
        """Return what is repaired, and from how many people that was learnt."""
        return f"<{type(self.model).__name__} with a repair learnt from {len(self.correction.test.known):,} people>"

    def save(self, path: str | Path, *, model: str | Path) -> None:
        """Write the repair to a `.fox` file with the SHA-256 of the model's own file, which is not copied."""
        sha256 = file_sha256(model)
        if sha256 is None:
            raise FileError(
                f"'{model}' is not a file, and a repair is stored for a model file; give one, such as skops or ONNX"
            )
        save_test(replace(self.correction, model_sha256=sha256), path)

    @property
    def _options(self) -> AuditOptions:
        return self.correction.test.options

    @property
    def _classes(self) -> list[object] | None:
        """The classes of the model where it has two, or the audited one and all others; None: 0 and 1."""
        described, yes = describe(self.model, wanted=self._options.output), self._options.positive
        own = None if described is None else described.classes
        named = [each for each in own or [0, 1] if is_level(each, yes)]
        if yes is not None and self._unit != "value" and (not named or len(own or ()) > 2):
            return [f"not {yes}", *(named or [yes])]
        return own if own is not None and len(own) == 2 else None

    @property
    def _first_is_yes(self) -> bool:
        return self._unit != "value" and is_level((self._classes or [0])[0], self._options.positive)

    @property
    def _unit(self) -> Returns:
        return Output(self._options.returns or "value", self._options.output).unit


def load_repair(path: str | Path, model: object, *, model_sha256: str | None) -> RepairedModel:
    """Return a model with the repair from a file; that of another model's file is refused."""
    correction = load_correction(path)
    if correction.model_sha256 is None or correction.model_sha256 != model_sha256:
        raise FileError(
            f"'{Path(path).name}' repairs another model: that one has the SHA-256 {_start(correction.model_sha256)}, "
            f"yours {_start(model_sha256)}; give the model that was repaired, or repair yours"
        )
    return RepairedModel(model, correction)


def _start(sha256: str | None) -> str:
    return "none" if sha256 is None else f"{sha256[:12]}..."


def repair(
    model: object,
    table: object,
    *,
    protected: str | Sequence[str],
    label: str | None = None,
    given: str | Sequence[str] = (),
    strength: float = 1.0,
    use_protected: bool = False,
    keep_rate: bool = False,
    columns: Sequence[str] | None = None,
    weights: str | None = None,
    decision_threshold: float | None = None,
    seed: int = 0,
    options: object = None,
    **unknown: object,
) -> RepairedModel:
    """Return a model with a correction: a person and their counterfactual rows get nearly the same prediction.

    The model is not trained again. A small network learns from the table what to add to its predictions, on the scale
    of log-odds. They change as little as they can while the mean effect and, without `given`, the distance between the
    predictions of the groups' real people fall. It asks the model about 12 rows for each person of the table and
    contrast, and later about one row each. Where the label depends on the group, any repair costs accuracy.

    Args:
        model: as for `fairfox.audit`.
        table: people to learn the counterfactual maps from; not those that the repaired model is audited on.
        protected: the protected column, a cut through one such as "age<25", or several; no numbers.
        label: the column of true outcomes, which is no feature.
        given: columns that may make a difference: they are held equal, and with them what they explain of the others.
        strength: 1 takes away about 80 % of the mean effect as `rank` measures it (less by other tests), 0 nothing.
        use_protected: let the repaired model take the protected column. This may be unlawful in lending or hiring.
        keep_rate: reset the threshold of `predict`, so that as many people of the table get a yes as before.
        columns: the columns that the model takes, in its order.
        weights: the column that says how many people a row stands for.
        decision_threshold: yes from this prediction on; by default one half of a probability.
        seed: same seed, same numbers.
        options: all other options by name, or in groups.
        unknown: refused, with what to write instead.
    """
    refuse_outside(unknown, *[*signature(repair).parameters][:-1])
    chosen = AuditOptions.of(
        options, protected=protected, label=label, given=given, columns=columns, weights=weights,
        decision_threshold=decision_threshold, seed=seed,
    ).without(NOT_OF_REPAIR, "a repair")  # fmt: skip
    return repair_with(model, table, chosen, strength=strength, use_protected=use_protected, keep_rate=keep_rate)


def repair_with(
    model: object, table: object, options: AuditOptions, *, strength: float, use_protected: bool, keep_rate: bool
) -> RepairedModel:
    """Return a repaired model, with options that are made already."""
    Number(0, 1).required("strength", strength)
    people = load_table(table)
    test = fit_with(people, options, model)
    if bool(test.encoding.withheld.any()) and not use_protected:
        raise OptionError(
            "The model itself takes the protected column, so a repair needs it too; allow it with use_protected=True "
            "(--use-protected), or train the model without it"
        )
    check_repairable(test)
    target, data, here = _asked(model, test, people, use_protected, is_new=True)
    cut = cut_of(target, describe(model, wanted=options.output), options)
    if keep_rate and cut is None:
        raise OptionError("To keep the rate of yes, say from which prediction on it is a yes (decision_threshold)")
    correction = fit_correction(test, target, data, strength=strength, use_protected=use_protected)
    test = replace(test, options=_read_again(options, model, target))
    correction = replace(correction, test=test, threshold=None if cut == HALF else cut)
    if keep_rate and cut is not None:
        counts = np.ones(len(data)) if data.weights is None else data.weights.numpy(force=True)
        after = correction.predict(target, data, here)
        correction = replace(correction, threshold=_cut_with_rate(after, here >= cut, counts))
    if use_protected:
        _log.warning(UNLAWFUL)
    return RepairedModel(model, correction)


def _read_again(options: AuditOptions, model: object, target: TargetModel) -> AuditOptions:
    """Return the options that read a model as it is read now, without asking it about anyone."""
    output = getattr(target, "output", Output(target.unit))  # a Model of the user's own has none
    described = describe(model, wanted=options.output)
    named = options.positive is not None or (described is not None and described.classes is not None)
    positive = options.positive if named else output.column
    unit = "logit" if target.unit == "logit" else options.output
    return replace(options, returns=output.returns, output=unit, positive=positive)


def _cut_with_rate(after: Tensor, yes: Tensor, counts: np.ndarray) -> float:
    """Return the prediction from which on as many people get a yes as did before."""
    scores, wanted = after.numpy(force=True), float(counts[yes.numpy(force=True)].sum())
    if wanted == 0:
        return float(np.nextafter(scores.max(), np.inf))
    order = np.argsort(-scores, kind="stable")
    enough = int((counts[order].cumsum() < wanted * (1 - 1e-12)).sum())
    return float(scores[order[enough]])


def _asked(
    model: object, test: FittedTest, people: Table, use_protected: bool, *, is_new: bool = False
) -> tuple[TargetModel, Dataset, Tensor]:
    """Return a model on encoded rows, the people of a table, and the model's own predictions for them.

    A model on tables sees the table itself first, so that it refuses what it would refuse alone. What a new model
    returns is seen from its predictions.
    """
    options = test.options
    encoding, data = read_people(test, describe(model, wanted=options.output), people)
    lacking = [n for s in encoding.sources for n in s.columns if n not in people.columns]
    if use_protected and lacking:
        raise ColumnError(f"The table has no column '{lacking[0]}', which the repaired model takes; give it")
    target = read_model(model, encoding, options, data.x if is_new else None)
    if isinstance(target, BlackBoxModel) and target.kind == "table":
        here = ask_table(target, encoding, people)
    else:
        here = predict(target, data.x, batch_size=options.batch_size)
    return target, data, check_predictions(here, target.unit)

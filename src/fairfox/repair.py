"""What a model says of people when one feature is repaired, is anybody's, or is kept from a new training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.data.dataset import Feature
from fairfox.data.frames import as_categories
from fairfox.errors import ModelError
from fairfox.models.blackbox import BlackBoxModel
from fairfox.models.description import Description
from fairfox.models.protocol import Model, predict
from fairfox.models.wrap import describe

_LOOKED_AT = 100  # people
FOLDS = 2  # of a new training: everyone is judged by a model that was trained on the others


@dataclass(frozen=True)
class People:
    """Encoded rows of people as they are and, in the same order, as members of another group."""

    here: Tensor  # (N, D)
    there: Tensor  # (N, D)
    both: int  # how many of them, the first, are asked about on both sides

    @classmethod
    def of(cls, x: Tensor, counterfactual: Tensor, rows: Tensor, *, most: float) -> People:
        """Return some of the people, at most so many of them to be asked about on both sides."""
        return cls(x[rows], counterfactual[rows], int(min(len(rows), max(most, 1))))

    def with_feature(self, f: Feature, block: Tensor) -> People:
        """Return the same people, all columns of one feature replaced on both sides."""
        here, there = self.here.clone(), self.there.clone()
        here[:, f.columns], there[:, f.columns] = block, block
        return People(here, there, self.both)


@dataclass(frozen=True)
class Answers:
    """A model's predictions for people as they are and, the first of them, as members of another group."""

    here: Tensor  # (N,)
    there: Tensor  # (both,)

    @classmethod
    def of(cls, model: Model, people: People, *, batch_size: int = 4096) -> Answers:
        """Return what the model says."""
        here, there = people.here, people.there[: people.both]
        return cls(predict(model, here, batch_size=batch_size), predict(model, there, batch_size=batch_size))

    @property
    def effect(self) -> Tensor:
        """The signed effects (both,)."""
        return self.there - self.here[: len(self.there)]


def rows_a_person(model: Model, x: Tensor) -> float:
    """Return how many rows a model is asked about for one of these people (N, D): one for each mix of categories."""
    if not isinstance(model, BlackBoxModel) or model.decoder is None or not model.blocks or len(x) == 0:
        return 1.0
    return len(model.decoder.expand(x[:_LOOKED_AT])[0]) / len(x[:_LOOKED_AT])


def some_of(among: Tensor, most: int, *, seed: int) -> Tensor:
    """Return the places of at most so many people, drawn at random from a mask (N,), in random order."""
    rows = among.nonzero()[:, 0]
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return rows[order[:most]]


def repaired(people: People, f: Feature) -> People:
    """Return people whose value of a feature is half way between both sides: the group is taken out, the rank stays.

    With two groups and the same ranks in both this is the full repair of Feldman et al. 2015: everyone gets the median
    of the groups' values at their rank. Categories become the mean of both distributions.
    """
    return people.with_feature(f, (people.here[:, f.columns] + people.there[:, f.columns]) / 2)


def anybodys(people: People, f: Feature, *, draws: int, seed: int) -> list[People]:
    """Return the people several times over, each time with other people's values of a feature.

    Everyone stands in a circle in random order and looks one place further with each draw, so that nobody meets their
    own value before all others'. Both sides of a person get the same value.
    """
    order = torch.randperm(len(people.here), generator=torch.Generator().manual_seed(seed)).to(people.here.device)
    out = []
    for step in range(1, draws + 1):
        source = torch.empty_like(order)
        source[order] = order.roll(step)
        out.append(people.with_feature(f, people.here[source][:, f.columns]))
    return out


def mean_answers(model: Model, several: Sequence[People], *, batch_size: int = 4096) -> Answers:
    """Return a model's predictions averaged over several versions of the same people."""
    each = [Answers.of(model, people, batch_size=batch_size) for people in several]
    return Answers(torch.stack([a.here for a in each]).mean(0), torch.stack([a.there for a in each]).mean(0))


def same_for_all(people: People, f: Feature) -> People:
    """Return people who all have the most frequent category of a feature, or its middle number.

    A model that is trained on them learns nothing from it, and still finds every column it names.
    """
    block = people.here[:, f.columns]
    if f.kind == "categorical":
        rows, counts = block.unique(dim=0, return_counts=True)
        one = rows[counts.argmax()]
    else:
        known = block[block[:, 1] < 0.5] if f.has_missing and bool((block[:, 1] < 0.5).any()) else block
        one = known[known[:, 0].argsort()[(len(known) - 1) // 2]]
    return people.with_feature(f, one)


@dataclass(frozen=True)
class TrainedAgain:
    """What models that were trained alike say of people they have not seen."""

    whole: Answers  # trained with all features
    repaired: tuple[Tensor, ...]  # (N,) each: the same models, of people with one feature repaired
    without: tuple[Answers, ...]  # models trained without one feature


def trained_again(
    estimator: object,
    target: BlackBoxModel,
    people: People,
    labels: np.ndarray,
    features: Sequence[Feature],
    tried: Sequence[Feature],
    *,
    seed: int = 0,
) -> TrainedAgain:
    """Return what newly trained models say of held-out people, for each of the features that are tried.

    The estimator is cloned and fitted on one half of the people for the other half, on what the target receives. A
    feature to do without has the same value for everyone. `labels` (N,) are as the estimator knows them.
    """
    from sklearn.base import is_classifier
    from sklearn.model_selection import KFold, StratifiedKFold

    halves = (StratifiedKFold if is_classifier(estimator) else KFold)(FOLDS, shuffle=True, random_state=seed)
    splits = [tuple(map(torch.as_tensor, split)) for split in halves.split(np.zeros(len(labels)), labels)]

    def trained(version: People) -> list[BlackBoxModel]:
        return [
            _fitted(estimator, target, version.here[part], labels[part.numpy()], features, seed) for part, _ in splits
        ]

    def held_out(models: Sequence[BlackBoxModel], x: Tensor) -> Tensor:
        out = x.new_zeros(len(x))
        for model, (_, part) in zip(models, splits, strict=True):
            own = part[part < len(x)]
            out[own] = predict(model, x[own])
        return out

    def answers(models: Sequence[BlackBoxModel], version: People) -> Answers:
        return Answers(held_out(models, version.here), held_out(models, version.there[: version.both]))

    models = trained(people)
    constant = [same_for_all(people, f) for f in tried]
    return TrainedAgain(
        whole=answers(models, people),
        repaired=tuple(held_out(models, repaired(people, f).here) for f in tried),
        without=tuple(answers(trained(version), version) for version in constant),
    )


def _fitted(
    estimator: object, target: BlackBoxModel, x: Tensor, labels: np.ndarray, features: Sequence[Feature], seed: int
) -> BlackBoxModel:
    """Return a clone of the estimator, fitted, that is asked as the target is."""
    from sklearn.base import clone

    described = describe(estimator, wanted=target.output.wanted)
    assert described is not None
    copy: Any = clone(getattr(estimator, "best_estimator_", estimator))  # a search has searched already
    unset = [name for name, value in copy.get_params().items() if _is_seed(name) and value is None]
    copy.set_params(**dict.fromkeys(unset, seed))  # the global generator is nobody's business
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the owner has seen already: no convergence, a constant column
        copy.fit(_inputs(target, x, described, features), labels)
    if list(getattr(copy, "classes_", [])) != list(getattr(estimator, "classes_", [])):
        raise ModelError("A newly trained model knows other classes than the audited one; give more labelled people")
    asked = describe(copy, wanted=target.output.wanted)
    assert asked is not None
    return BlackBoxModel(asked.predict, decoder=target.decoder, kind=target.kind, output=target.output)


def _is_seed(name: str) -> bool:
    return name.rpartition("__")[2] == "random_state"


def _inputs(target: BlackBoxModel, x: Tensor, described: Description, features: Sequence[Feature]) -> Any:
    """Return encoded rows as the estimator was given them."""
    if target.kind == "encoded" or target.decoder is None:
        return x.numpy(force=True)
    if target.kind == "matrix":
        return target.decoder.matrix(x).numpy(force=True)
    levels = {f.name: [v for v in f.levels if v is not None] for f in features if f.name in described.as_category}
    table = target.decoder.table(x)
    return as_categories(table, levels) if levels else table

"""fit_test(table, protected=...): all that a fairness test learns from people, without any model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from fairfox.auxiliary.model import Auxiliary, AuxiliaryModel, FixedAuxiliary, centre_and_spread
from fairfox.auxiliary.quality import AuxiliaryQuality, measure_quality
from fairfox.crossfit import DIRECT, TOTAL
from fairfox.data.dataset import Dataset
from fairfox.data.encode import Encoding, fit_encoding
from fairfox.data.hashes import rows_sha256
from fairfox.data.table import load_table
from fairfox.errors import OptionError
from fairfox.explain import proxy_strength
from fairfox.extras import installed_versions
from fairfox.fairtests.effect import Effect
from fairfox.fairtests.protocol import MeasuringTest
from fairfox.fairtests.registry import make_test
from fairfox.fitted import FittedTest, Setting
from fairfox.maps.legitimate import legitimate_features
from fairfox.maps.rank import RankMap
from fairfox.maps.resampled import fit_resampled
from fairfox.question import Question
from fairfox.similarity import covariance_metric

_UNSTORED = ("fliptest", "counterfactual")
_MANY = 50_000  # people: with more, rank maps are fitted together and auxiliaries in larger batches, as in an audit
_BATCH, _EPOCHS = 256, 15


def fit_test(
    table: object,
    *,
    protected: str | Sequence[str],
    test: str = "rank",
    options: Mapping[str, Setting] | None = None,
    label: str | None = None,
    id: str | None = None,
    intersections: bool = False,
    hold_others: bool = False,
    legitimate: str | Sequence[str] = (),
    reference_group: str | Sequence[str] | None = None,
    contrasts: str = "largest",
    merge_rare: float | None = None,
    weights: str | None = None,
    categorical: Sequence[str] = (),
    continuous: Sequence[str] = (),
    drop: Sequence[str] = (),
    columns: Sequence[str] | None = None,
    refits: int = 5,
    seed: int = 0,
    batch_size: int = 4096,
) -> FittedTest:
    """Return a fairness test fitted on all people of a table; what the arguments mean is in `fairfox.audit`.

    There is no model here, so that `columns` says what models take, in their order: by default all columns but the
    protected ones, the label, the id, the weights and those to drop.
    """
    question = Question(
        protected=protected,
        label=label,
        test=test,
        options=options,
        delta=None,
        deltas=None,
        limits=None,
        intersections=intersections,
        hold_others=hold_others,
        legitimate=legitimate,
        reference_group=reference_group,
        contrasts=contrasts,
        merge_rare=merge_rare,
        on=None,
        weights=weights,
        seed=seed,
        categorical=categorical,
        continuous=continuous,
        drop=drop,
        columns=columns,
        id=id,
        positive=None,
        output="probability",
        returns=None,
        kind=None,
        refits=refits,
        folds=2,
        batch_size=batch_size,
    )
    _check_storable(question)
    encoding = fit_encoding(
        frame := load_table(table),
        protected=question.specs,
        label=label,
        id_column=id,
        weights=weights,
        drop=drop,
        categorical=categorical,
        continuous=continuous,
        columns=columns,
        intersections=intersections,
        merge_rare=merge_rare,
        reference_group=reference_group or (),
        contrasts=contrasts,
        dtype=torch.float64,
        seed=seed,
    )
    return _fitted(question, encoding, encoding.encode(frame))


def _check_storable(question: Question) -> None:
    """Refuse tests that no file can hold, before any work is done."""
    if question.several:
        raise OptionError("A file holds one fitted test; give its name instead of 'all', and fit others one by one")
    if question.main.partition("/")[0] in _UNSTORED:
        raise OptionError(f"{question.main} cannot be stored in a file; fit rank, move or faux, or use fairfox audit")


def _fitted(question: Question, encoding: Encoding, data: Dataset) -> FittedTest:
    q = question
    legitimate_features(data, q.legitimate_names)  # refuses what cannot be
    unfitted = AuxiliaryModel(refits=q.refits, seed=q.seed)
    if len(data) > _MANY:
        unfitted.batch_size, unfitted.max_epochs = _BATCH, _EPOCHS
    trained = unfitted.fit(data)
    auxiliary = FixedAuxiliary(trained.members, trained.held_out)
    tests = {}
    for name in dict.fromkeys([q.main, DIRECT, TOTAL]):
        one = make_test(
            name,
            auxiliary=auxiliary,
            hold_others=q.hold_others,
            legitimate=q.legitimate_names,
            refits=q.refits,
            seed=q.seed,
            batch_size=q.batch_size,
            options=q.options if name == q.main else None,
        )
        tests[name] = _fit(one, data)
    return FittedTest(
        name=q.main,
        options=dict(q.options or {}),  # type: ignore[arg-type]
        seed=q.seed,
        version=installed_versions("fairfox")["fairfox"],
        table=rows_sha256(data),
        encoding=encoding,
        known=_without_features(data),
        auxiliary=auxiliary,
        quality=_qualities(auxiliary, data),
        proxy=tuple(_proxies(auxiliary, data, v, q.batch_size) for v in range(len(data.protected))),
        metric=covariance_metric(data.x, weights=data.weights),
        tests=tests,
        legitimate=tuple(q.legitimate_names),
        intersections=q.intersections,
        hold_others=q.hold_others,
        merge_rare=q.merge_rare,
        batch_size=q.batch_size,
    )


def _fit(test: MeasuringTest, data: Dataset) -> MeasuringTest:
    """Return the test, fitted; rank maps of many people together, which gives the same numbers but for rounding."""
    if len(data) > _MANY and isinstance(test, Effect) and isinstance(test.map, RankMap) and not test.aligned:
        test.fitted = fit_resampled(test.map, data, test.refits, seed=test.seed)
        return test
    return test.fit(data)


def _without_features(data: Dataset) -> Dataset:
    """Return the protected values and weights alone, sorted, so that they tell nothing about single rows."""
    c, weights = data.c, data.weights
    order = torch.arange(len(c))
    for values in [*([] if weights is None else [weights]), *c.unbind(1)]:
        order = order[values[order].argsort(stable=True)]
    return Dataset(
        x=data.x[:, :0].clone(),
        c=c[order],
        protected=data.protected,
        features=(),
        weights=None if weights is None else weights[order],
    )


def _proxies(auxiliary: Auxiliary, data: Dataset, variable: int, batch_size: int) -> dict[str, float]:
    """Return how strongly each feature gives a protected variable away, largest first."""
    strengths = proxy_strength(auxiliary, data, variable=variable, batch_size=batch_size).tolist()
    pairs = zip([f.name for f in data.features], strengths, strict=True)
    return dict(sorted(pairs, key=lambda pair: -pair[1]))


def _qualities(auxiliary: Auxiliary, data: Dataset) -> tuple[AuxiliaryQuality, ...]:
    """Return how well each protected variable is told on the rows that the auxiliary was not trained on."""
    rows = auxiliary.held_out
    assert rows is not None
    with torch.no_grad():
        outputs = torch.stack([member(rows.x) for member in auxiliary.members]).mean(0)
    out, first = [], 0
    for v, p in enumerate(data.protected):
        own = outputs[:, first : first + p.outputs]
        if p.is_continuous:  # in its own units
            mean, spread = centre_and_spread(data.c[:, v], data.weights)
            own = mean + spread * own
        out.append(measure_quality(own, rows.c[:, v], p, weights=rows.weights))
        first += p.outputs
    return tuple(out)

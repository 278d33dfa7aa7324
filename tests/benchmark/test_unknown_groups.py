"""People whose protected value nobody knows, against what is truly so: their own value is hidden from the audit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
import torch
from causal_worlds import ADDITIVE, THREE_CLASSES
from hiring_worlds import AGE
from torch import Tensor

from fairfox import audit
from fairfox.benchmark.judge import spearman
from fairfox.benchmark.scm import Values, Variable, World
from fairfox.benchmark.worlds import LENDING
from fairfox.data.table import load_table
from fairfox.findings import AuditRecord
from fairfox.models.protocol import predict
from tests.benchmark.truths import audited

PEOPLE = 2000
UNKNOWN = 600


def _club(race: Values, noise: Values) -> Values:
    return race + 0.35 * noise


# One more column, in which people are much like others of their group.
*OTHERS, LABEL = THREE_CLASSES.variables
THREE_TOLD = replace(THREE_CLASSES, name="with a club", variables=(*OTHERS, Variable("club", _club), LABEL))


@dataclass(frozen=True)
class Hidden:
    """An audit of people of whom some have no protected value in the table, and what is true of everyone."""

    result: AuditRecord
    unknown: Tensor  # (N,) bool
    told_right: Tensor  # (N,) bool: the group they were taken for is their own
    worst: Tensor  # (N,) true |effect|, the largest over the contrasts

    def rho(self, people: Tensor) -> float:
        return spearman(self.result.scores[people], self.worst[people])


@cache
def hidden(world: World) -> Hidden:
    found = audited(world)
    name, table = world.protected[0], found.population.table.slice(0, PEOPLE)
    own = table[name].to_pylist()
    unknown = np.random.default_rng(0).permutation(PEOPLE) < UNKNOWN
    kept = pa.array(own, mask=unknown)

    def model(people: object) -> np.ndarray:
        return predict(found.model, found.encoding.encode(load_table(people)).x).numpy()

    result = audit(
        model,
        table.set_column(table.column_names.index(name), name, kept),
        protected=name,
        label=world.label,
        columns=list(found.population.features),
        options={"returns": "probability", "refits": 1, "contrasts": "all"},
    ).record
    effects = torch.stack([found.effect(contrast)[:PEOPLE].abs() for contrast in found.contrasts], dim=1)
    right = [taken == str(truly) for taken, truly in zip(result.findings[0].group, own, strict=True)]
    return Hidden(result, torch.tensor(unknown), torch.tensor(right), effects.amax(1))


@pytest.mark.parametrize("world", [AGE, LENDING, THREE_TOLD], ids=lambda world: world.name)
def test_people_of_unknown_groups_are_ordered_almost_as_well_as_the_others(world: World):
    seen = hidden(world)
    assert seen.result.inferred.tolist() == seen.unknown.tolist()
    assert not seen.result.abstained.any()
    known, unknown = seen.rho(~seen.unknown), seen.rho(seen.unknown)
    assert known >= 0.75
    assert unknown >= known - 0.1


def test_where_columns_say_little_about_the_group_only_people_taken_for_what_they_are_are_ordered_well():
    # Without the own value even the mean of the scores under each group, in proportion to its probability, orders
    # these people by at least 0.13 worse: what is missing is knowledge, not a better score.
    seen = hidden(ADDITIVE)
    known, right = seen.rho(~seen.unknown), seen.rho(seen.unknown & seen.told_right)
    assert 0.5 < float(seen.told_right[seen.unknown].double().mean()) < 0.8
    assert right == pytest.approx(known, abs=0.05)
    assert seen.rho(seen.unknown) > 0.6

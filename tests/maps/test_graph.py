"""Counterfactuals along a graph of causes, and how graphs are read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from causal_worlds import CATEGORICAL_PROXIES, THREE_CLASSES
from hiring_worlds import AGE, SEX_AND_RACE
from hypothesis import given, settings
from hypothesis import strategies as st
from populations import block, encoded, individuals, normal, one_hot, people
from torch import Tensor

from fairfox.benchmark.scm import SEX, Population, Values, Variable, World
from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.encoding import Encoding
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, FileError, OptionError
from fairfox.maps.graph import GraphMap, read_graph
from fairfox.maps.rank import RankMap

NAN = float("nan")


def features_of(population: Population) -> tuple[Encoding, Dataset]:
    return encoded(population.table, population.protected, columns=population.features)


def hiring(*causes: str) -> dict[str, list[str]]:
    """Return the graph of the worlds in which people are hired, their ability unseen."""
    return {"salary": [*causes, "experience"], "experience": [*causes], "distance": [*causes]}


def _merit(noise: Values) -> Values:
    return 2.0 * noise


def _education(sex: Values, merit: Values, noise: Values) -> Values:
    return 12.0 + 1.5 * sex + 0.7 * merit + noise


def _income(sex: Values, education: Values, merit: Values, noise: Values) -> Values:
    return 3000.0 - 250.0 * sex + 180.0 * education + 90.0 * merit + 400.0 * noise


def _rent(income: Values, noise: Values) -> Values:
    return 200.0 + 0.3 * income + 50.0 * noise


def _granted(income: Values, noise: Values) -> Values:
    return (income + 300.0 * noise > 5000.0).astype(float)


OWN = World(
    "own",
    (
        SEX,
        Variable("merit", _merit),
        Variable("education", _education),
        Variable("income", _income),
        Variable("rent", _rent),
        Variable("granted", _granted),
    ),
    label="granted",
)
OWN_GRAPH = {"rent": ["income"], "income": ["sex", "education", "merit"], "education": ["merit", "sex"]}


def test_every_true_counterfactual_of_its_own_causal_model_is_reproduced():
    population = OWN.sample(6000, seed=0)
    encoding, data = features_of(population)
    rows = GraphMap(OWN_GRAPH).fit(data).map(data).rows
    truth = population.counterfactual
    assert torch.equal(rows[:, 0], data.x[:, 0])  # merit, on which nothing acts
    assert max(errors(encoding, rows, truth, ["education", "income", "rent"])) < 0.05
    assert (np.abs(np.array(truth["rent"]) - np.array(population.table["rent"])) > 1).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 10**6), arrows=st.lists(st.booleans(), min_size=15, max_size=15))
def test_nothing_changes_without_a_path_from_the_protected_variable(seed: int, arrows: list[bool]):
    names, data = ["sex", *(f"x{j}" for j in range(5))], individuals(normal(40, 5, seed=seed))
    pairs = [(i, j) for j in range(1, 6) for i in range(j)]
    parents = {
        names[j]: [names[i] for (i, k), on in zip(pairs, arrows, strict=True) if k == j and on] for j in range(1, 6)
    }
    parents["x4"] = sorted({*parents["x4"], "sex"})
    reached = {"sex"}
    for name in names[1:]:
        if reached.intersection(parents[name]):
            reached.add(name)
    out = GraphMap(parents).fit(data).map(data).rows
    for j, name in enumerate(names[1:]):
        assert torch.equal(out[:, j], data.x[:, j]) is (name not in reached)


def errors(encoding: Encoding, found: Tensor, truth: Any, names: list[str]) -> list[float]:
    """Return the median distance from the truth for each column, in standard deviations."""
    place = {name: j for j, name in enumerate(encoding.columns)}
    gaps = [encoding.matrix(found)[:, place[n]].numpy() - np.array(truth[n]) for n in names]
    return [float(np.median(np.abs(gap)) / np.std(np.array(truth[n]))) for gap, n in zip(gaps, names, strict=True)]


def test_every_class_of_many_is_reached():
    population = THREE_CLASSES.sample(6000, seed=0)
    encoding, data = features_of(population)
    fitted = GraphMap(hiring("race")).fit(data)
    for code, level in enumerate(data.protected[0].levels):
        out = fitted.map(data, torch.full((6000,), float(code)))
        assert torch.equal(out.abstained, data.c[:, 0] == code)
        truth = population.as_if({"race": level})
        assert max(errors(encoding, out.rows, truth, ["experience", "salary", "distance"])) < 0.08


def test_a_number_goes_up_and_down_by_its_standard_deviation():
    population = AGE.sample(4000, seed=0)
    encoding, data = features_of(population)
    fitted = GraphMap(hiring("age")).fit(data)
    age = np.array(population.table["age"])
    for sign in (1.0, -1.0):
        out = fitted.map(data, torch.full((4000,), sign))
        assert out.reason == "nobody to compare with has a protected value that high or low"
        beyond = age + sign * age.std() > age.max() if sign > 0 else age - age.std() < age.min()
        assert out.abstained.tolist() == beyond.tolist()
        assert torch.equal(out.rows[out.abstained], data.x[out.abstained])
        truth = population.as_if({"age": age + sign * age.std()})
        names = ["experience", "salary", "distance"]
        there = ~out.abstained.numpy()
        gaps = errors(encoding, out.rows[there], {n: np.array(truth[n])[there] for n in names}, names)
        assert max(gaps) < 0.07


def test_other_protected_variables_stay_and_may_be_parents():
    population = SEX_AND_RACE.sample(5000, seed=0)
    encoding, data = features_of(population)
    graph = hiring("sex", "race") | {"distance": ["race"]}
    other = np.where(np.array(population.table["sex"]) == "Male", "Female", "Male")
    out = GraphMap(graph, variable=0).fit(data).map(data)
    assert max(errors(encoding, out.rows, population.as_if({"sex": other}), ["experience", "salary"])) < 0.06
    distance = encoding.columns.index("distance")
    assert torch.equal(out.rows[:, distance], data.x[:, distance])
    out = GraphMap(graph, variable=1).fit(data).map(data, torch.full((5000,), 1.0))
    truth = population.as_if({"race": "Black"})
    assert max(errors(encoding, out.rows, truth, ["experience", "salary", "distance"])) < 0.08


def test_what_is_protected_itself_is_held():
    sex, migrant = torch.arange(200) % 2, torch.arange(200) // 3 % 2
    variables = (Protected("sex", "binary", ("f", "m")), Protected("migrant", "binary", ("no", "yes")))
    numbers = torch.stack([migrant, 3 * sex], dim=1) + normal(200, 2)
    x = torch.cat([numbers, one_hot(migrant, 2)], dim=1)
    features = (*individuals(numbers).features, block("migrant", ("no", "yes"), start=2))
    withheld = torch.tensor([False, False, True, True])
    data = individuals(x, features=features, withheld=withheld)
    data = replace(data, c=torch.stack([sex, migrant], dim=1).double(), protected=variables)
    graph = {"migrant": ["sex"], "x0": ["migrant"], "x1": ["sex"]}
    out = GraphMap(graph).fit(data).map(data).rows
    assert torch.equal(out[:, [0, 2, 3]], x[:, [0, 2, 3]])  # sex acts on x0 through migrant alone, which stays
    assert float((out[:, 1] - x[:, 1] - 3 * (1 - 2 * sex)).abs().median()) < 0.5


def test_a_crossing_sets_all_its_parts():
    table = SEX_AND_RACE.sample(3000, seed=0).table
    _, data = encoded(table, ["sex", "race"], drop=["hired"], intersections=True, merge_rare=0.12)
    levels = data.protected[2].levels
    assert levels[-1] == "other (Female & Asian, Male & Asian)"
    fitted = GraphMap(hiring("sex", "race"), variable=2).fit(data)
    to = levels.index("Female & White")
    out = fitted.map(data, torch.full((3000,), float(to)))
    assert torch.equal(out.abstained, data.c[:, 2] == to)
    men = (data.c[:, 0] == 1) & (data.c[:, 1] == data.protected[1].levels.index("White"))
    as_women = GraphMap(hiring("sex", "race"), variable=0).fit(data).map(data).rows
    for f in data.features[:3]:
        gap = (out.rows - as_women)[men, f.start].abs().median()
        assert float(gap) < 0.1  # of its standard deviation: the noise of one group is ranked, or that of all
    nowhere = fitted.map(data, torch.full((3000,), float(len(levels) - 1)))
    assert nowhere.abstained.all()
    assert nowhere.reason == "the destination group merges several classes"
    with pytest.raises(OptionError, match="names the intersection 'sex x race'; name sex and race instead"):
        GraphMap({"salary": ["sex x race"]}).fit(data)


def test_a_category_moves_as_little_as_its_shares_allow():
    # a, a, b of women and a, b, c of men: shares 2/3 1/3 0 and 1/3 1/3 1/3; half of the women at a go to c
    places = torch.tensor([0, 0, 1, 0, 1, 2]).repeat(500)
    data = individuals(
        one_hot(places, 3), c=torch.tensor([0, 0, 0, 1, 1, 1]).repeat(500), features=(block("job", "abc"),)
    )
    out = GraphMap({"job": ["sex"]}).fit(data).map(data).rows
    expected = torch.tensor([[0.5, 0, 0.5], [0.5, 0, 0.5], [0, 1, 0], [1, 0, 0], [0, 1, 0], [1, 0, 0]]).double()
    torch.testing.assert_close(out[:6], expected, atol=0.01, rtol=0)  # the penalty of the regression is small
    torch.testing.assert_close(out, RankMap().fit(data).map(data).rows, atol=0.01, rtol=0)  # nothing else acts on it


def test_the_categories_of_a_world_reach_the_true_shares():
    population = CATEGORICAL_PROXIES.sample(4000, seed=0)
    encoding, data = features_of(population)
    graph = {"field": ["sex"], "role": ["sex", "field"], "club": ["sex"]}
    graph |= {"experience_years": ["sex", "role"], "last_salary": ["sex", "field"]}
    out = GraphMap(graph).fit(data).map(data).rows
    truth = encoding.encode(load_table(population.counterfactual.select(list(encoding.columns)))).x
    for f in encoding.features:
        for own in (0, 1):
            members = data.c[:, 0] == own
            gap = (out - truth)[members][:, f.columns].mean(0).abs().max()
            assert float(gap) < 0.06 * (1 if f.kind == "categorical" else 2)
    blocks = [out[:, f.columns] for f in encoding.features if f.kind == "categorical"]
    assert all(float(one.min()) >= 0 for one in blocks)
    for one in blocks:
        torch.testing.assert_close(one.sum(1), torch.ones(4000).double())


def test_what_is_missing_stays_missing_and_passes_nothing_on():
    frame = people(200)
    frame["age"] = frame["age"].astype(float)
    frame.loc[::9, "age"] = np.nan
    _, data = encoded(frame)
    age, debt = (next(f for f in data.features if f.name == name) for name in ("age", "debt"))
    out = GraphMap({"age": ["sex"], "debt": ["age"]}).fit(data).map(data).rows
    gone = data.x[:, age.start + 1] > 0.5
    assert torch.equal(out[gone], data.x[gone])
    assert torch.equal(out[:, age.start + 1], data.x[:, age.start + 1])
    for f in (age, debt):  # all others move, if the nearest value of the other group is not their own
        assert float((out != data.x)[~gone, f.start].double().mean()) > 0.8


def test_a_label_that_is_missing_for_some_may_be_in_the_graph():
    c = (torch.arange(300) % 2).double()
    label = (c[:, None] + normal(300, 1)).masked_fill(torch.arange(300)[:, None] < 30, NAN)
    x = torch.cat([c[:, None], label.nan_to_num()], dim=1) + normal(300, 2, seed=1)
    data = replace(individuals(x, c=c), w=label, covariates=(Feature("label", "continuous", 0, 1),))
    out = GraphMap({"x0": ["sex"], "label": ["sex", "x0"], "x1": ["label"]}).fit(data).map(data)
    assert not out.abstained.any()
    assert (out.rows[:, 0] != x[:, 0]).all()
    assert torch.equal(out.rows[:30, 1], x[:30, 1])
    assert float((out.rows != x)[30:, 1].double().mean()) > 0.9


def test_people_who_lack_a_protected_value_that_is_needed_stay_and_are_abstained():
    variables = (Protected("sex"), Protected("race"), Protected("club"))
    c = torch.stack([torch.arange(20) % 2, torch.arange(20) // 2 % 2, torch.arange(20) // 4 % 2], dim=1).double()
    c[3, 0] = c[4, 1] = c[5, 2] = NAN
    data = replace(individuals(normal(20, 1)), c=c, protected=variables)
    out = GraphMap({"x0": ["sex", "race"]}).fit(data).map(data)
    assert out.abstained.nonzero()[:, 0].tolist() == [3, 4]
    assert out.reason == "protected value unknown"
    assert torch.equal(out.rows[3:5], data.x[3:5])


def test_a_weight_counts_as_so_many_people():
    # men earn 2 more; one in ten of them, who counts for nothing or for a hundred, 8 more
    c, rich = (torch.arange(4000) % 2).double(), torch.arange(4000) % 20 == 1
    x = (2 * c + 6 * rich)[:, None] + 0.1 * normal(4000, 1)
    graph, women = {"x0": ["sex"]}, c == 0
    for weight, expected in ((0.0, 2.0), (100.0, 8.0)):
        data = individuals(x, c=c, weights=torch.where(rich, weight, 1.0).double())
        moved = (GraphMap(graph).fit(data).map(data).rows - x)[women, 0]
        assert float(moved.median()) == pytest.approx(expected, abs=0.1)


def test_a_column_that_the_variable_is_read_from_takes_the_other_groups_value():
    frame = people(60).assign(club=["chess", "dance", "golf"] * 20)
    encoding, data = encoded(frame, ["sex", "club"], columns=["sex", "club", "income"])
    graph = {"income": ["sex", "club"]}
    found = encoding.table(GraphMap(graph).fit(data).map(data).rows)
    assert found["sex"].tolist() == frame["sex"].map({"male": "female", "female": "male"}).tolist()
    assert found["club"].tolist() == frame["club"].tolist()
    found = encoding.table(GraphMap(graph, variable=1).fit(data).map(data, torch.full((60,), 2.0)).rows)
    assert set(found["club"]) == {"golf"}
    assert found["sex"].tolist() == frame["sex"].tolist()


def test_a_cut_is_named_as_it_is_protected():
    _, data = encoded(people(80), ["age<40"], columns=["income", "age"])
    with pytest.raises(OptionError, match="names 'age', from which the protected variable 'age<40' is read; name"):
        GraphMap({"income": ["age"]}).fit(data)
    out = GraphMap({"income": ["age<40"]}).fit(data).map(data)
    assert not out.abstained.any()
    assert (out.rows != data.x).all()  # the age too: it has the same rank on the other side of the cut


def test_a_graph_in_which_nothing_changes_is_refused():
    with pytest.raises(OptionError, match="'sex' has no children, so nothing would change; add it"):
        GraphMap({"x1": ["x0"]}).fit(individuals(normal(20, 2)))


def test_a_dict_and_a_toml_file_read_the_same(tmp_path: Path):
    parents = {"income": ["sex", "job"], "job": ["sex", "age<25"], "home town": ["income"]}
    file = tmp_path / "graph.toml"
    file.write_text('[parents]\nincome = ["sex", "job"]\njob = ["sex", "age<25"]\n"home town" = ["income"]\n')
    assert read_graph(parents) == read_graph(file) == read_graph(str(file))
    assert read_graph(read_graph(parents)) == read_graph(parents)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, r"has a cycle: . -> . -> . -> .; remove one of these edges"),
        ({"a": ["a"]}, "has a cycle: a -> a"),
        ({"a": "sex"}, "gives 'a' the parents 'sex'; expected a list of names"),
        ({"a": [1]}, r"gives 'a' the parents \[1\]; expected a list of names"),
        ({"a": ["b", "b"]}, "lists 'b' twice among the parents of 'a'"),
        (None, "No graph given; list the parents"),
        ({}, "The graph is empty; give the parents of at least one column"),
    ],
)
def test_what_is_no_graph_is_refused(source: Any, message: str):
    with pytest.raises(OptionError, match=message):
        read_graph(source)


def test_a_file_that_holds_no_graph_is_refused(tmp_path: Path):
    file = tmp_path / "graph.toml"
    with pytest.raises(FileError, match=r"graph.toml' cannot be read \(No such file or directory\)"):
        read_graph(file)
    file.write_text("income = [")
    with pytest.raises(FileError, match=r"graph.toml' is not valid TOML: "):
        read_graph(file)
    file.write_text('income = ["sex"]')
    with pytest.raises(FileError, match=r"has no table \[parents\]"):
        read_graph(file)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"incom": ["sex"]}, r"names 'incom', which is neither a column nor protected. Did you mean 'income'\?"),
        ({"income": ["gender"]}, "names 'gender', .* Choose from: sex, income, age, debt, job"),
    ],
)
def test_a_graph_that_does_not_fit_the_table_is_refused(graph: Any, message: str):
    _, data = encoded(people(40))
    with pytest.raises(ColumnError, match=message):
        GraphMap(graph).fit(data)

from pathlib import Path
from typing import Any

import pytest
from populations import people

from fairfox.data.encode import fit_encoding
from fairfox.data.table import load_table
from fairfox.errors import ColumnError, FileError, OptionError
from fairfox.maps.arrows import check_names, read_graph
from fairfox.synthetic.worlds import SEX_AND_RACE


def test_a_dict_and_a_toml_file_read_the_same(tmp_path: Path):
    parents = {"income": ["sex", "job"], "job": ["sex", "age<25"], "home town": ["income"]}
    file = tmp_path / "graph.toml"
    file.write_text('[parents]\nincome = ["sex", "job"]\njob = ["sex", "age<25"]\n"home town" = ["income"]\n')
    assert read_graph(parents) == read_graph(file) == read_graph(str(file))
    assert read_graph(read_graph(parents)) == read_graph(parents)


def test_parents_come_before_their_children():
    graph = read_graph({"d": ["c"], "c": ["b", "a"], "b": ["a"], "e": []})
    assert list(graph.parents) == ["b", "c", "d"]
    assert graph.names == ["a", "b", "c", "d"]
    assert graph.descendants(["b"]) == ["c", "d"]
    assert graph.descendants(["a"], held=["c"]) == ["b"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, r"goes in a circle: . -> . -> . -> .; leave out one of these arrows"),
        ({"a": ["a"]}, "goes in a circle: a -> a"),
        ({"a": "sex"}, "gives 'a' the parents 'sex'; expected a list of names"),
        ({"a": [1]}, r"gives 'a' the parents \[1\]; expected a list of names"),
        ({"a": ["b", "b"]}, "names 'b' twice among the parents of 'a'"),
        (None, "No graph is given; say which columns act on which"),
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
    with pytest.raises(FileError, match="is not TOML"):
        read_graph(file)
    file.write_text('income = ["sex"]')
    with pytest.raises(FileError, match=r"has no table \[parents\]"):
        read_graph(file)


def test_a_crossing_is_named_by_its_parts():
    table = load_table(SEX_AND_RACE.sample(300, seed=0).table)
    data = fit_encoding(table, protected=["sex", "race"], drop=["hired"], intersections=True).encode(table)
    with pytest.raises(OptionError, match="names the crossing 'sex x race'; name sex and race instead"):
        check_names(read_graph({"salary": ["sex x race"]}), data)


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"incom": ["sex"]}, r"names 'incom', which is no column of the model.* Did you mean 'income'\?"),
        ({"income": ["gender"]}, "names 'gender', .* There are: sex, income, age, debt, job"),
    ],
)
def test_a_graph_that_does_not_fit_the_table_is_refused(graph: Any, message: str):
    table = load_table(people(40))
    data = fit_encoding(table, protected=["sex"]).encode(table)
    with pytest.raises(ColumnError, match=message):
        check_names(read_graph(graph), data)

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from fairfox.codec import Fit, Kind, Writer, read
from fairfox.errors import FileError, OptionError


class Speaks(Protocol):
    def word(self) -> str: ...


class Voice:
    def word(self) -> str:
        return "yes"


class Pair(NamedTuple):
    low: int
    high: int


@dataclass(frozen=True)
class Point:
    at: Tensor
    name: str = "here"
    size: float = 1.0
    seen: list[int] = field(default_factory=list)


@dataclass
class Plain:
    first: Point | None
    ways: dict[tuple[int, int], Point]
    pair: Pair

    def __post_init__(self) -> None:
        if self.pair.low > self.pair.high:
            raise ValueError("the wrong way round")


@dataclass(frozen=True)
class Sorted:
    ordered: Tensor
    count: int

    @classmethod
    def of(cls, values: Tensor) -> "Sorted":
        return cls(values.sort().values, len(values))


KINDS = {
    "Point": Kind.listed(Point, left_out=("seen",)),
    "Plain": Kind.listed(Plain),
    "Pair": Kind.listed(Pair),
    "Sorted": Kind.listed(Sorted, stored=("ordered",), rebuilt=True),
}


def round_trip(value: object) -> Any:
    writer = Writer(KINDS)
    writer.put([value])  # a node, whatever the value is
    return read(json.loads(json.dumps(writer.nodes, allow_nan=False)), writer.tensors, KINDS)[-1][0]


def refused(nodes: object, message: str, **tensors: Tensor) -> None:
    with pytest.raises(FileError, match=message):
        read(nodes, tensors, KINDS)


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
keys = st.text() | st.integers() | st.tuples(st.integers(), st.integers())


@settings(max_examples=40, deadline=None)
@given(st.recursive(scalars, lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(keys, inner)))
def test_values_come_back_as_they_were(value: object):
    assert repr(round_trip(value)) == repr(value)  # NaN is NaN, 1 is not 1.0, a tuple is no list


def test_an_object_comes_back_field_by_field_and_what_it_looked_up_last_does_not():
    point = Point(torch.tensor([[1.0, math.nan]]), "there", math.inf, seen=[3])
    again = round_trip(Plain(point, {(0, 1): point}, Pair(1, 2)))
    assert type(again) is Plain
    assert again.pair == Pair(1, 2)
    assert (again.first.name, again.first.size, again.first.seen) == ("there", math.inf, [])
    torch.testing.assert_close(again.first.at, point.at, equal_nan=True)


def test_what_is_shared_stays_shared():
    point = Point(torch.zeros(2))
    again = round_trip([point, Point(point.at), point])
    assert again[0] is again[2]
    assert again[0].at is again[1].at


def test_a_network_comes_back_with_the_same_outputs_to_the_last_bit():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    state, x = torch.get_rng_state(), torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(round_trip(net)(x), net(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_class_that_can_be_made_again_stores_only_what_it_is_made_from():
    writer = Writer(KINDS)
    writer.put(Sorted.of(torch.tensor([2.0, 1.0])))
    assert writer.nodes[-1][1].keys() == {"ordered"}
    again = read(writer.nodes, writer.tensors, KINDS)[-1]
    assert (again.ordered.tolist(), again.count) == ([1.0, 2.0], 2)


@pytest.mark.parametrize("value", [object(), lambda: None, {1, 2}, b"x", nn.Sequential(nn.Linear(1, 1), nn.Sigmoid())])
def test_what_is_not_listed_is_not_written(value: object):
    with pytest.raises(OptionError, match="stored in a file"):
        round_trip(value)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([], "nothing"),
        ("x", "nothing"),
        ([["os.system", {"command": "true"}]], "'os.system', which is not part"),
        ([["builtins.eval", ["1"]]], "'builtins.eval', which is not part"),
        ([["list", [{"node": 0}]]], "no earlier part"),  # itself
        ([["list", [{"node": 1}]], ["list", []]], "no earlier part"),
        ([["list", []], ["list", [{"node": -1}]]], "no earlier part"),
        ([["list", [{"node": True}]]], "no earlier part"),
        ([["list", [{"float": "1e400"}]]], "no earlier part"),
        ([["list", [[1]]]], "neither a value"),
        ([["tensor", "9"]], "cannot be read"),
        ([["dtype", "qint8"]], "cannot be read"),
        ([["network", [1, 2]]], "cannot be read"),
        ([["list"]], "cannot be read"),
        ([[["list"], []]], "cannot be read"),
        ([["dict", [[{"node": 0}, 1]]]], "no earlier part"),
        ([["Pair", {"low": 1}]], "'Pair' in it has other parts"),
        ([["Pair", {"low": 1, "high": 2, "__class__": 3}]], "'Pair' in it has other parts"),
        ([["Pair", {"low": 1, "high": "2"}]], "'high' of a 'Pair' in it is of a wrong type"),
        ([["Point", {"at": 1, "name": "", "size": 1}]], "'at' of a 'Point' in it is of a wrong type"),
        ([["Sorted", {"ordered": None}]], "'ordered' of a 'Sorted' in it is of a wrong type"),
    ],
)
def test_nodes_that_are_not_what_they_should_be_are_refused(nodes: object, message: str):
    refused(nodes, message)


def test_an_object_checks_itself_when_it_is_read():
    wrong = Pair(2, 1)
    writer = Writer(KINDS)
    writer.put(wrong)
    writer.nodes += [["dict", []], ["Plain", {"first": None, "ways": {"node": 1}, "pair": {"node": 0}}]]
    refused(writer.nodes, r"cannot be read \(ValueError\)")


def test_one_tensor_cannot_be_blown_up_into_many_objects():
    one = [["tensor", "a"], ["Sorted", {"ordered": {"node": 0}}]]
    assert read(one, {"a": torch.zeros(100)}, KINDS)[-1].count == 100
    refused([*one, one[1]], "sizes that it does not have", a=torch.zeros(100))


@pytest.mark.parametrize("key", [None, True, 1.5, {"float": "nan"}])
def test_keys_are_whole_numbers_and_texts(key: object):
    refused([["dict", [[key, 1]]]], "a key in it is neither a number nor a text")


def test_a_key_whose_hash_would_take_for_ever_is_refused():
    nodes: list[list[Any]] = [["tuple", []]]
    nodes += [["tuple", [{"node": k}] * 2] for k in range(60)]  # 2 ** 60 parts
    refused([*nodes, ["dict", [[{"node": 60}, 1]]]], "a key in it is neither a number nor a text")


def test_a_list_that_is_part_of_many_is_looked_through_once():
    reads = 0

    class Counted(list[int]):
        def __iter__(self) -> Iterator[int]:
            nonlocal reads
            reads += 1
            return super().__iter__()

    fit, inner = Fit(()), Counted([1, 2])
    outer = [inner] * 100
    assert fit(outer, list[list[int]])
    assert fit([inner, inner], list[list[int]])
    assert not fit(outer, list[list[str]])
    assert reads == 2  # once as numbers, once as texts


def test_layers_of_a_network_must_have_shapes():
    nodes = [["tensor", "a"], ["tensor", "b"], ["network", [{"node": 0}, {"node": 1}]]]
    refused(nodes, "no shape", a=torch.zeros(2), b=torch.zeros(2))


@pytest.mark.parametrize(
    ("value", "hint", "right"),
    [
        (1, int, True),
        (True, int, False),
        (1.0, int, False),
        (1, float, True),
        (True, float, False),
        (True, bool, True),
        ("a", Literal["a", "b"], True),
        ("c", Literal["a", "b"], False),
        (None, int | None, True),
        ("a", int | None, False),
        ((1, "a"), tuple[int, str], True),
        ((1,), tuple[int, str], False),
        ((1, 2, 3), tuple[int, ...], True),
        ([1], tuple[int, ...], False),
        ([1], Sequence[int], True),
        ("a", Sequence[str], False),
        ({"a": 1}, dict[str, int], True),
        ({1: 1}, dict[str, int], False),
        (Voice(), Speaks, True),  # listed, and has what the protocol asks for
        (Pair(1, 2), Speaks, False),
        (object(), Speaks, False),
        ("a", Speaks, False),
        (object(), Any, True),
    ],
)
def test_a_value_fits_what_its_class_declares(value: object, hint: Any, right: bool):
    assert Fit((Pair, Voice))(value, hint) is right

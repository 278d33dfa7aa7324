"""Objects as plain data: a list of JSON nodes and the tensors they name. No name from a file is ever imported.

A node is one object, list, tuple, dict, tensor, dtype or network. It holds numbers and texts as they are, and whatever
else as the place of an earlier node, so that what is shared stays shared, nothing can contain itself, and reading is
one loop. Objects are of the classes that the reader lists, field by field, each of the type that its class declares.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Protocol, Self, Union, get_args, get_origin, get_type_hints

import torch
from torch import Tensor, nn

from fairfox.errors import FileError, OptionError

Nodes = list[list[Any]]  # [kind, content] each
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no such numbers
FAILURES = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    RuntimeError,
    ArithmeticError,
    AssertionError,
    MemoryError,
)


@dataclass(frozen=True)
class Kind:
    """A class whose objects may be stored: the names that are, and those that are empty when it is read again."""

    of: type
    stored: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    rebuilt: bool = False  # by `of.of(...)` from what is stored, as it was first made
    loose: tuple[str, ...] = ()  # names whose values may be of other types than declared

    @classmethod
    def listed(
        cls,
        of: type,
        *,
        stored: Sequence[str] = (),
        left_out: Sequence[str] = (),
        rebuilt: bool = False,
        loose: Sequence[str] = (),
    ) -> Self:
        """Return a class with the fields that it declares but some, or with the names given."""
        names = getattr(of, "_fields", None) or ([f.name for f in fields(of)] if is_dataclass(of) else [])
        kept = tuple(stored) or tuple(name for name in names if name not in left_out)
        return cls(of, kept, tuple(left_out), rebuilt, tuple(loose))

    def make(self, values: Mapping[str, Any]) -> object:
        """Return the object that has these values."""
        if self.rebuilt:
            return self.of.of(*values.values())  # type: ignore[attr-defined]
        if issubclass(self.of, tuple):
            return self.of(**values)
        one: object = object.__new__(self.of)
        for name, value in {**{name: _empty(self.of, name) for name in self.left_out}, **values}.items():
            object.__setattr__(one, name, value)  # frozen or not
        check = getattr(one, "__post_init__", None)
        if check is not None:
            check()
        return one


class Writer:
    """Takes an object apart."""

    def __init__(self, kinds: Mapping[str, Kind]) -> None:
        self.kinds = {kind.of: (name, kind) for name, kind in kinds.items()}
        self.nodes: Nodes = []
        self.tensors: dict[str, Tensor] = {}
        self._places: dict[int, int] = {}
        self._seen: list[object] = []  # kept alive, so that no two have the same id

    def put(self, value: object) -> Any:
        """Return a value as JSON: itself, or the place of the node it became."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if id(value) not in self._places:
            node = self._node(value)
            self._places[id(value)] = len(self.nodes)
            self._seen.append(value)
            self.nodes.append(node)
        return {"node": self._places[id(value)]}

    def _node(self, value: object) -> list[Any]:
        if type(value) in (list, tuple):
            return [type(value).__name__, [self.put(item) for item in value]]  # type: ignore[attr-defined]
        if type(value) is dict:
            return ["dict", [[self.put(key), self.put(item)] for key, item in value.items()]]
        if isinstance(value, Tensor):
            name = f"{len(self.tensors)}"
            self.tensors[name] = value.detach().cpu().contiguous()
            return ["tensor", name]
        if isinstance(value, torch.dtype) and str(value).removeprefix("torch.") in _DTYPES:
            return ["dtype", str(value).removeprefix("torch.")]
        if isinstance(value, nn.Sequential):
            return ["network", [self.put(part) for part in _layers(value)]]
        if type(value) not in self.kinds:
            raise OptionError(f"A {type(value).__name__} is part of this, and cannot be stored in a file")
        name, kind = self.kinds[type(value)]
        return [name, {field: self.put(getattr(value, field)) for field in kind.stored}]


def read(nodes: object, tensors: Mapping[str, Tensor], kinds: Mapping[str, Kind]) -> list[Any]:
    """Return what each node is, the whole last; FileError where one is not what it should be."""
    if not isinstance(nodes, list) or not nodes:
        raise FileError("there is nothing in it")
    made: list[Any] = []
    fit = Fit(tuple(known.of for known in kinds.values()))
    left = sum(tensor.nbytes for tensor in tensors.values())  # a tensor may be what one object is rebuilt from
    for node in nodes:
        try:
            made.append(_made(node, made, tensors, kinds, fit))
            left -= _rebuilt_from(node, made, kinds)
        except FAILURES as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"part {len(made)} cannot be read ({type(error).__name__})") from error
        if left < 0:
            raise FileError("it names sizes that it does not have")
    return made


def _rebuilt_from(node: Any, made: list[Any], kinds: Mapping[str, Kind]) -> int:
    """Return how many bytes of tensors an object was rebuilt from."""
    if node[0] not in kinds or not kinds[node[0]].rebuilt:
        return 0
    parts = [made[value["node"]] for value in node[1].values()]
    return sum(part.nbytes for part in parts)


def _made(node: Any, made: list[Any], tensors: Mapping[str, Tensor], kinds: Mapping[str, Kind], fit: Fit) -> Any:
    def get(value: Any) -> Any:
        if not isinstance(value, dict):
            if value is None or type(value) in (bool, int, float, str):
                return value
            raise FileError(f"part {len(made)} holds what is neither a value nor another part")
        (word, content), *more = value.items()
        if word == "float" and content in _NOT_FINITE and not more:
            return float(content)
        if word != "node" or more or type(content) is not int or not 0 <= content < len(made):
            raise FileError(f"part {len(made)} refers to no earlier part")
        return made[content]

    name, content = node
    if name in ("list", "tuple"):
        return [list, tuple][name == "tuple"](get(item) for item in content)
    if name == "dict":
        return {_key(get(key)): get(item) for key, item in content}
    if name == "tensor":
        return tensors[content]
    if name == "dtype":
        return _DTYPES[content]
    if name == "network":
        return _network([get(item) for item in content])
    if name not in kinds:
        raise FileError(f"it holds a '{name}', which is not part of any test")
    kind = kinds[name]
    if set(content) != set(kind.stored):
        raise FileError(f"a '{name}' in it has other parts than here")
    values = {field: get(content[field]) for field in kind.stored}
    _check_types(name, kind, values, fit)
    return kind.make(values)


def _key(value: Any) -> Any:
    """Return a key of a dict; parts of parts are refused, since a hash goes through what is shared again and again."""
    parts = value if type(value) is tuple else (value,)
    if not all(type(part) in (int, str) for part in parts):
        raise FileError("a key in it is neither a number nor a text, nor some of them")
    return value


def _check_types(name: str, kind: Kind, values: Mapping[str, Any], fit: Fit) -> None:
    """Refuse values of other types than the class declares; classes that declare none check for themselves."""
    declared = _declared(kind.of)
    for field, value in values.items():
        if field in declared and field not in kind.loose and not fit(value, declared[field]):
            raise FileError(f"'{field}' of a '{name}' in it is of a wrong type")


@cache
def _declared(of: type) -> dict[str, Any]:
    return get_type_hints(of)


class Fit:
    """Says whether values are of declared types; a list that is part of many others is looked through once.

    What a protocol asks for may be any of the `known` classes that has its parts. The values must outlive it.
    """

    def __init__(self, known: tuple[type, ...]) -> None:
        self.known = known
        self._found: dict[tuple[int, Any], bool] = {}

    def __call__(self, value: object, hint: Any) -> bool:
        """Return whether a value is of a declared type."""
        if not isinstance(value, list | tuple | dict):
            return self._fits(value, hint)
        key = id(value), hint
        if key not in self._found:
            self._found[key] = self._fits(value, hint)
        return self._found[key]

    def _fits(self, value: object, hint: Any) -> bool:
        origin, args = get_origin(hint), get_args(hint)
        if hint is Any:
            return True
        if origin in (Union, UnionType):
            return any(self(value, each) for each in args)
        if origin is Literal:
            return type(value) in (bool, int, str) and value in args
        if hint is None or hint is type(None):
            return value is None
        if origin is tuple and isinstance(value, tuple) and (len(args) != 2 or args[1] is not ...):
            return len(value) == len(args) and all(map(self, value, args))
        if origin in (list, tuple, Sequence):
            right = list | tuple if origin is Sequence else origin
            return isinstance(value, right) and all(self(item, args[0]) for item in value)
        if origin in (dict, Mapping):
            return isinstance(value, dict) and all(self(k, args[0]) and self(v, args[1]) for k, v in value.items())
        if hint in (float, int):
            return isinstance(value, int | hint) and not isinstance(value, bool)
        if Protocol in getattr(hint, "__mro__", ()):
            return isinstance(value, self.known) and all(_has(value, name) for name in _asked(hint))
        return isinstance(hint, type) and isinstance(value, hint)


@cache
def _asked(protocol: type) -> tuple[str, ...]:
    """Return the names of what a protocol asks for."""
    own = [one for one in protocol.__mro__ if one is not Protocol and Protocol in one.__mro__]
    names = {name for one in own for name in (*vars(one), *vars(one).get("__annotations__", {}))}
    return tuple(sorted(name for name in names if name == "__call__" or not name.startswith("_")))


def _has(value: object, name: str) -> bool:
    """Return whether an object has a part, without running what would look it up."""
    return hasattr(type(value), name) or name in getattr(value, "__dict__", {})


def _empty(of: type, name: str) -> Any:
    """Return what a field is when nothing was put into it: its default, else None."""
    field = next((f for f in fields(of) if f.name == name), None) if is_dataclass(of) else None
    if field is None or (field.default is MISSING and field.default_factory is MISSING):
        return None
    return field.default if field.default_factory is MISSING else field.default_factory()


def _layers(net: nn.Sequential) -> list[Tensor]:
    """Return the weights and biases of a plain network, layer after layer."""
    linear = [layer for layer in net if type(layer) is nn.Linear]
    if [type(layer) for layer in net] != [nn.Linear, nn.ReLU] * (len(linear) - 1) + [nn.Linear]:
        raise OptionError("Only networks of Linear, ReLU, ..., Linear can be stored in a file")
    return [part.detach() for layer in linear for part in (layer.weight, layer.bias)]


def _network(parts: Sequence[Tensor]) -> nn.Sequential:
    """Return the plain network with these weights and biases."""
    layers: list[nn.Module] = []
    for weight, bias in zip(parts[::2], parts[1::2], strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise FileError("a network in it has layers of no shape")
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")  # no memory and no random numbers
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()

"""Fitted tests as files: one safetensors file whose header says, in JSON, which objects the tensors belong to.

Nothing in such a file can run. It holds numbers, text, and names of the classes that are listed here; no name from a
file is ever imported. The header has a list of nodes: each is one object, list, tuple, dict, tensor, dtype or network.
A node holds numbers and text directly, and everything else as the number of a node before it. So shared objects stay
shared, nothing can contain itself, and reading is one loop. Each field must have the type that its class declares.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Protocol, TypeVar, Union, get_args, get_origin, get_type_hints

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor, nn

from fairfox.data.dataset import Dataset, Feature
from fairfox.data.files import written_whole
from fairfox.data.sources import Crossing, ProtectedSource
from fairfox.errors import FairfoxError, FileError, OptionError, installed_versions
from fairfox.fairtests.correction import Correction
from fairfox.fairtests.fitted import SAME_OUTCOME, FittedTest, Fold, readings_of
from fairfox.fairtests.readings import measure_folds
from fairfox.models.adapters import as_model
from fairfox.models.protocol import predict

_Stored = TypeVar("_Stored")

FORMAT = 4  # files of other formats are refused

# the classes that a test is made of, by module
_CLASSES: dict[str, tuple[str, ...]] = {
    "options": ("AuditOptions",),
    "fairtests.fitted": ("FittedTest",),
    "fairtests.correction": ("Correction",),
    "data.dataset": ("Dataset", "Feature", "Protected"),
    "data.encoding": ("Encoding",),
    "data.sources": ("ProtectedSource", "Values", "NumberColumn", "Cut", "Crossing"),
    "gradients.alignment": ("Head",),
    "auxiliary.model": ("AuxiliaryModel", "FixedAuxiliary", "AuxiliaryMember"),
    "auxiliary.linear": ("LinearAuxiliary", "LinearMember"),
    "auxiliary.quality": ("AuxiliaryQuality",),
    "maps.check": ("Support",),
    "maps.ranks": ("Ranks", "Scale"),
    "maps.conditional": ("Columns", "Regressed", "Terms", "Spline", "Spread", "Steps", "Levels"),
    "maps.rank": ("RankMap", "RankPlan", "Stratified", "ClassRanks", "ClassValues", "SwapMap"),
    "maps.move": ("MoveMap", "Geometry", "GroupLogits", "OutputLine"),
    "maps.transport": ("TransportMap", "Members", "Pairs"),
    "fairtests.effect": ("Effect",),
    "fairtests.faux": ("FAux",),
    "fairtests.fta": ("FTA", "FTALinear"),
    "fairtests.unfair_map": ("UnfairMap",),
    "fairtests.unawareness": ("Unawareness",),
}
# fields with rows of people, models, and what was looked up last; they are empty when a class is read again
_LEFT_OUT: dict[str, tuple[str, ...]] = {
    "Encoding": ("fitted_on",),
    "Dataset": ("y", "ids", "truth"),
    "AuxiliaryModel": ("held_out",),
    "FixedAuxiliary": ("held_out",),
    "LinearAuxiliary": ("held_out",),
    "RankMap": ("grids", "codes"),
    "FittedTest": ("seconds", "training_seconds", "failures"),
}
_REBUILT = {"Ranks": ("ordered",)}  # by `Ranks.of(ordered)`: the rest is an index of it

_KEY = "fairfox test"  # in the header: a checksum of everything else, then JSON
_HASH = 64  # letters of the checksum
_LARGEST_HEADER = 100 * 2**20  # of safetensors, as their own library has it
_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_NOT_FINITE = ("nan", "inf", "-inf")  # JSON has no such numbers
_APART = "its contents do not fit together"
_MOST = 10**5  # steps or refits: far more than anybody waits for
_RANGES = {
    "seed": (0, 2**64 - 1),  # that random generators take
    "batch_size": (1, 2**62),
    "classes": (0, _MOST),
    **dict.fromkeys(("refits", "steps", "restarts"), (1, _MOST)),
}
_PEOPLE, _UNKNOWN = 100, 5  # made-up people, and those of them whose protected values are missing
_FAR = 1e6  # standard deviations: farther than anybody


def save_test(test: FittedTest | Correction, path: str | Path) -> None:
    """Write a fitted test, or a repair with its test, to one file, atomically."""
    content = to_bytes(test)
    try:
        with written_whole(Path(path)) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"The test cannot be written to '{path}' ({reason}); choose another file") from error


def load_test(path: str | Path) -> FittedTest:
    """Return the fitted test in a file; a file that is damaged, changed or of another format is refused."""
    return _loaded(Path(path), from_bytes, what="fitted test", command="fairfox fit")


def load_correction(path: str | Path) -> Correction:
    """Return the repair in a file, likewise."""
    return _loaded(
        Path(path), lambda content: _restored(content, Correction, "repair")[0], what="repair", command="fairfox repair"
    )


def _loaded(path: Path, read: Callable[[bytes], _Stored], *, what: str, command: str) -> _Stored:
    if not path.is_file():
        raise FileError(f"There is no file '{path}'; write one with {command}")
    try:
        return read(path.read_bytes())
    except FileError as error:
        raise FileError(f"'{path.name}' is not a usable {what}: {error} (write it again with {command})") from error


def to_bytes(test: FittedTest | Correction) -> bytes:
    """Return a fitted test, or a repair with its test, as the bytes of a file."""
    writer = Writer(_stored_classes())
    writer.put(test)
    main = (test.test if isinstance(test, Correction) else test).options.main
    about = {"format": FORMAT, "fairfox": installed_versions("fairfox")["fairfox"], "test": main}
    text = json.dumps({**about, "nodes": writer.nodes}, allow_nan=False)
    content = save(writer.tensors, {_KEY: _checksum(text, writer.tensors) + text})
    if int.from_bytes(content[:8], "little") > _LARGEST_HEADER:
        raise OptionError("The test is too large for a file; fit it with fewer refits or protected classes")
    return content


def from_bytes(content: bytes, *, device: str = "cpu") -> FittedTest:
    """Return the fitted test in the bytes of a file; FileError says in a few words what is wrong with them."""
    test, nodes, tensors = _restored(content, FittedTest, "fitted test")
    if device == "cpu":
        return test
    moved = read_nodes(nodes, {k: tensor.to(device) for k, tensor in tensors.items()}, _stored_classes())
    on_device: FittedTest = moved[-1]
    return replace(on_device, encoding=test.encoding)  # tables are encoded on the processor


def _restored(content: bytes, kind: type[_Stored], what: str) -> tuple[_Stored, Any, dict[str, Tensor]]:
    """Return what a file holds, checked and tried, and its nodes and tensors."""
    nodes, tensors = _read(content)
    # clones lie in memory as all of torch's tensors do, so that sums come out the same to the last bit
    objects = read_nodes(nodes, {k: tensor.clone() for k, tensor in tensors.items()}, _stored_classes())
    found = objects[-1]
    if not isinstance(found, kind):
        raise FileError(f"it holds no {what}")
    repair = objects[-1] if isinstance(objects[-1], Correction) else None
    test = objects[-1] if repair is None else repair.test
    check_consistent(test, objects)
    try_out(test, repair)
    return found, nodes, tensors


def _read(content: bytes) -> tuple[Any, dict[str, Tensor]]:
    """Return the nodes and tensors of a file, where this version of fairfox can read it and its checksum is right."""
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= min(len(content) - 8, _LARGEST_HEADER):
        raise FileError("it is truncated, or was not written by fairfox")
    header = _json(content[8 : 8 + length])
    texts = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(texts, dict) or list(texts) != [_KEY] or not isinstance(texts[_KEY], str):
        raise FileError("it was not written by fairfox")
    claimed, text = texts[_KEY][:_HASH], texts[_KEY][_HASH:]
    about = _json(text)
    written = about.get("format") if isinstance(about, dict) else None
    if type(written) is not int or written < 1:
        raise FileError("it does not say which version wrote it")
    if written != FORMAT:
        own, writer = installed_versions("fairfox")["fairfox"], ascii(about.get("fairfox"))[1:21].strip("'")
        newer = f", which is newer than {own}; upgrade fairfox"
        raise FileError(f"fairfox {writer} wrote it{newer if written > FORMAT else ' in an older format'}")
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise FileError("it is truncated or damaged") from error
    if any(max(tensor.shape, default=0) > len(content) for tensor in tensors.values()):
        raise FileError("its sizes do not match its contents")
    if claimed != _checksum(text, tensors):
        raise FileError("its checksum differs, so it was changed after it was written")
    return about.get("nodes"), tensors


def _json(text: Any) -> Any:
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise FileError("its header is damaged") from error


def _checksum(text: str, tensors: Mapping[str, Tensor]) -> str:
    found = sha256(text.encode())
    for name, tensor in sorted(tensors.items()):
        found.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        found.update(tensor.numpy().tobytes())
    return found.hexdigest()


_type_hints = cache(get_type_hints)


@dataclass(frozen=True)
class StoredClass:
    """A class whose objects may be stored: the stored fields, and those that are empty after reading."""

    of: type
    stored: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    rebuilt: bool = False  # by `of.of(...)` from what is stored, as it was first made

    def make(self, values: Mapping[str, Any]) -> object:
        """Return the object that has these values, each of the type that its class declares."""
        if self.rebuilt:
            return self.of.of(*values.values())  # type: ignore[attr-defined]
        if issubclass(self.of, tuple):
            return self.of(**values)
        made: object = object.__new__(self.of)
        for name, value in {**{name: _empty(self.of, name) for name in self.left_out}, **values}.items():
            object.__setattr__(made, name, value)  # frozen or not
        check = getattr(made, "__post_init__", None)
        if check is not None:
            check()
        return made


def _empty(of: type, name: str) -> Any:
    """Return what a field is when nothing was put into it: its default, else None."""
    field = next((f for f in fields(of) if f.name == name), None) if is_dataclass(of) else None
    if field is None or (field.default is MISSING and field.default_factory is MISSING):
        return None
    return field.default if field.default_factory is MISSING else field.default_factory()


@cache
def _stored_classes() -> dict[str, StoredClass]:
    """Return the classes of a test by their names in files."""
    out = {}
    for module, names in _CLASSES.items():
        for name in names:
            found = getattr(import_module(f"fairfox.{module}"), name)
            own = [f.name for f in fields(found)] if is_dataclass(found) else found._fields
            left_out = _LEFT_OUT.get(name, ())
            stored = _REBUILT.get(name) or tuple(f for f in own if f not in left_out)
            out[f"{module}.{name}"] = StoredClass(found, stored, left_out, name in _REBUILT)
    return out


class Writer:
    """Takes an object apart into nodes, [kind, content] each, and tensors."""

    def __init__(self, classes: Mapping[str, StoredClass]) -> None:
        self.classes = {known.of: (name, known) for name, known in classes.items()}
        self.nodes: list[list[Any]] = []
        self.tensors: dict[str, Tensor] = {}
        self._numbers: dict[int, int] = {}  # of nodes, by the id of what they hold
        self._held: list[object] = []  # kept alive, so that no two have the same id

    def put(self, value: object) -> Any:
        """Return a value as JSON: itself, or the number of the node it became."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if id(value) not in self._numbers:
            node = self._node(value)
            self._numbers[id(value)] = len(self.nodes)
            self._held.append(value)
            self.nodes.append(node)
        return {"node": self._numbers[id(value)]}

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
            linear = [layer for layer in value if type(layer) is nn.Linear]
            if [type(layer) for layer in value] != [nn.Linear, nn.ReLU] * (len(linear) - 1) + [nn.Linear]:
                raise OptionError("Only networks of Linear, ReLU, ..., Linear can be stored in a file")
            return ["network", [self.put(part.detach()) for layer in linear for part in (layer.weight, layer.bias)]]
        if type(value) not in self.classes:
            raise OptionError(f"The test contains a {type(value).__name__}, which cannot be stored in a file")
        name, known = self.classes[type(value)]
        return [name, {field: self.put(getattr(value, field)) for field in known.stored}]


def read_nodes(nodes: object, tensors: Mapping[str, Tensor], classes: Mapping[str, StoredClass]) -> list[Any]:
    """Return what each node holds, the root last; raise a FileError where one is not valid."""
    if not isinstance(nodes, list) or not nodes:
        raise FileError("it is empty")
    made: list[Any] = []
    fits = TypeCheck(tuple(known.of for known in classes.values()))
    spare = sum(tensor.nbytes for tensor in tensors.values())  # each tensor may be rebuilt into one object
    for node in nodes:
        try:
            made.append(_made(node, made, tensors, classes, fits))
            if node[0] in classes and classes[node[0]].rebuilt:
                spare -= sum(made[value["node"]].nbytes for value in node[1].values())
        except FileError:
            raise
        except Exception as error:  # whatever a crafted node makes fail
            raise FileError(f"object {len(made)} cannot be read ({type(error).__name__})") from error
        if spare < 0:
            raise FileError("its sizes do not match its contents")
    return made


def _made(
    node: Any, made: list[Any], tensors: Mapping[str, Tensor], classes: Mapping[str, StoredClass], fits: TypeCheck
) -> Any:
    def get(value: Any) -> Any:
        if not isinstance(value, dict):
            if value is None or type(value) in (bool, int, float, str):
                return value
            raise FileError(f"object {len(made)} holds neither a value nor another object")
        (word, content), *more = value.items()
        if word == "float" and content in _NOT_FINITE and not more:
            return float(content)
        if word != "node" or more or type(content) is not int or not 0 <= content < len(made):
            raise FileError(f"object {len(made)} does not refer to one before it")
        return made[content]

    name, content = node
    if name in ("list", "tuple"):
        return [list, tuple][name == "tuple"](get(item) for item in content)
    if name == "dict":
        keys = [get(key) for key, _ in content]
        # tuples of tuples are refused: a hash goes through what is shared again and again
        if not all(type(part) in (int, str) for key in keys for part in (key if type(key) is tuple else (key,))):
            raise FileError("a key in it is neither a number nor text, nor a tuple of these")
        return dict(zip(keys, (get(item) for _, item in content), strict=True))
    if name == "tensor":
        return tensors[content]
    if name == "dtype":
        return _DTYPES[content]
    if name == "network":
        return _network([get(item) for item in content])
    if name not in classes:
        raise FileError(f"it holds a {str(name)[:100]!r}, which is not part of any test")
    known = classes[name]
    if set(content) != set(known.stored):
        raise FileError(f"a '{name}' in it has other fields than here")
    values, declared = {field: get(content[field]) for field in known.stored}, _type_hints(known.of)
    for field, value in values.items():  # classes that declare no types check for themselves
        if field in declared and not fits(value, declared[field]):
            raise FileError(f"'{field}' of a '{name}' in it has the wrong type")
    return known.make(values)


def _network(parts: Sequence[Tensor]) -> nn.Sequential:
    """Return the plain network with these weights and biases."""
    layers: list[nn.Module] = []
    for weight, bias in zip(parts[::2], parts[1::2], strict=True):
        if weight.ndim != 2 or bias.shape != weight.shape[:1]:
            raise FileError("a network in it has layers without a shape")
        linear = nn.Linear(weight.shape[1], weight.shape[0], device="meta")  # no memory and no random numbers
        linear.weight, linear.bias = nn.Parameter(weight), nn.Parameter(bias)
        layers += [linear, nn.ReLU()]
    return nn.Sequential(*layers[:-1]).eval()


class TypeCheck:
    """Checks that values, which must outlive it, have their declared types; a protocol accepts any `known` class.

    A shared list is checked once.
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
            return isinstance(value, self.known)  # what it lacks of the protocol is found when it is tried out
        return isinstance(hint, type) and isinstance(value, hint)


def check_consistent(test: FittedTest, objects: Sequence[Any]) -> None:
    """Raise where a test has numbers out of range or inconsistent contents, before it is used.

    It checks what would take forever, use all memory, or fail while scoring; `try_out` finds the rest.
    """
    for each in objects:
        held = getattr(each, "__dict__", {})
        for name, (least, most) in _RANGES.items():
            if type(held.get(name)) is int and not least <= held[name] <= most:
                raise FileError(f"'{name}' in it is not between {least} and {most}")
    encoding, variables, width = test.encoding, test.known.protected, test.encoding.width
    wide = width + _width(encoding.covariates) + sum(max(len(p.levels), 1) for p in variables)  # all side by side
    crossings = [each for each in objects if isinstance(each, Crossing)]
    levels = 1 + sum(len(f.levels) for f in encoding.features if f.kind == "categorical")
    right = (
        test.metric.shape == (width, width),  # so that the file has the size that its columns say
        all(0 <= each.start <= each.stop <= wide for each in objects if isinstance(each, Feature)),
        (encoding.width, _width(encoding.covariates)) == (_summed(encoding.features), _summed(encoding.covariates)),
        len(encoding.columns) == len(set(encoding.columns)),
        encoding.dtype == torch.float64,
        set(readings_of(test.options, labelled=SAME_OUTCOME in test.tests, takes_protected=False)) == set(test.tests),
        len(test.support) == len(variables),
        all(low_high.shape == (2, width) for each in test.support for low_high in each.ranges.values()),
        all(each.unseen.shape == (levels, levels) for each in test.support),
        len(test.auxiliary.members) <= _MOST,
        len(variables) > 0 and variables == tuple(source.variable for source in encoding.sources),
        all(len(p.levels) <= len(test.known) and p.reference in (None, *range(len(p.levels))) for p in variables),
        all(_classes(source) <= {None, *range(len(source.variable.levels))} for source in encoding.sources),
        not any(isinstance(part.reader, Crossing) for each in crossings for part in each.parts),
        [each.variable for each in test.quality] == [p.name for p in variables],
        [set(each) for each in test.proxy] == [set(encoding.columns)] * len(variables),
    )
    if not all(right):
        raise FileError(_APART)


def _width(features: Sequence[Feature]) -> int:
    return features[-1].stop if features else 0


def _summed(features: Sequence[Feature]) -> int:
    return sum(f.stop - f.start for f in features)


def _classes(source: ProtectedSource) -> set[int | None]:
    """Return the classes that people may get from a table."""
    return {*getattr(source.reader, "classes", ()), getattr(source.reader, "rest", None)}


def try_out(test: FittedTest, correction: Correction | None = None) -> None:
    """Raise where a test, or a repair, cannot do its work; it is tried on simulated people and a simulated model.

    A FairfoxError is ignored here: it would be raised again while scoring, and is not a fault of the file.
    """

    def mean_of_columns(x: Tensor) -> Tensor:
        return x.mean(1, keepdim=True).sigmoid()

    try:
        data = made_up_people(test)
        target = as_model(mean_of_columns, returns="probability")
        fold = Fold(torch.arange(len(data)), test)
        measure_folds([fold], target, data, predict(target, data.x), progress=lambda text, done: None)
        if correction is not None:
            correction.predict(target, data)
    except FairfoxError:
        return
    except Exception as error:  # whatever parts that do not fit together make fail
        raise FileError(f"{_APART} ({type(error).__name__})") from error


def made_up_people(test: FittedTest) -> Dataset:
    """Return people of all classes and categories, the same for the same test; some lack their protected values."""
    known, features, generator = test.known, test.encoding.features, torch.Generator().manual_seed(0)

    def drawn(kinds: int) -> Tensor:
        """Return one of some kinds for everyone (N,), each as often, in a random order."""
        return torch.arange(_PEOPLE)[torch.randperm(_PEOPLE, generator=generator)] % kinds

    def rows(features: Sequence[Feature]) -> Tensor:
        x = torch.zeros(_PEOPLE, _width(features), dtype=torch.float64)
        for f in features:
            if f.kind == "categorical":
                x[torch.arange(_PEOPLE), f.start + drawn(len(f.levels))] = 1.0
            else:
                x[:, f.start] = torch.randn(_PEOPLE, generator=generator, dtype=torch.float64)
                x[:, f.start] *= torch.tensor([1.0, 1.0, _FAR], dtype=torch.float64)[drawn(3)]
        return x

    columns = []
    for v, p in enumerate(known.protected):  # numbers of the fitting rows are in order: low and high ones
        values = known.c[:, v].double().nan_to_num()
        columns.append(values[drawn(_PEOPLE) * len(values) // _PEOPLE] if p.is_continuous else drawn(len(p.levels)))
    c = torch.stack([column.double() for column in columns], dim=1)
    c[-_UNKNOWN:] = torch.nan
    return Dataset(
        x=rows(features),
        c=c,
        protected=known.protected,
        features=features,
        w=rows(test.encoding.covariates),
        covariates=test.encoding.covariates,
        y=drawn(2).double(),
        withheld=test.encoding.withheld,
        weights=None if known.weights is None else torch.ones(_PEOPLE, dtype=torch.float64),
    )

"""Fitted tests as files: one safetensors file whose header says, in JSON, what the tensors are parts of.

Nothing in such a file can run: it holds numbers, texts, and names of classes that are listed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor

from fairfox.codec import Kind, Writer, read
from fairfox.data.files import written_whole
from fairfox.errors import FileError, OptionError
from fairfox.extras import installed_versions
from fairfox.fitted import FittedTest
from fairfox.wholeness import check_whole, try_out

FORMAT = 1  # grows when older versions of fairfox could not read a file
_KEY = "fairfox test"  # in the header: a checksum of everything else, then JSON
_HASH = 64  # letters of the checksum
_LARGEST_HEADER = 100 * 2**20  # of safetensors, as their own library has it

# the classes that a test is made of, by module
_CLASSES: dict[str, tuple[str, ...]] = {
    "fitted": ("FittedTest",),
    "data.dataset": ("Dataset", "Feature", "Protected"),
    "data.encode": ("Encoding",),
    "data.sources": ("ProtectedSource", "Values", "Number", "Cut", "Crossing"),
    "alignment": ("Head",),
    "auxiliary.model": ("AuxiliaryModel", "FixedAuxiliary", "AuxiliaryMember"),
    "auxiliary.linear": ("LinearAuxiliary", "LinearMember"),
    "auxiliary.quality": ("AuxiliaryQuality",),
    "maps.ranks": ("Ranks", "SameRank"),
    "maps.rank": ("RankMap", "Strata", "ClassRanks", "_Group", "_Pair"),
    "maps.resampled": ("_Places", "_Way"),
    "maps.along": ("NumberRanks", "Scale", "Along"),
    "maps.splines": ("Splines",),
    "maps.legitimate": ("GivenRanks", "Part"),
    "maps.surfaces": ("Own", "Bent", "Terms", "Surfaces"),
    "maps.stairs": ("Stairs",),
    "maps.move": ("MoveMap", "Surroundings", "GroupLogits", "OutputLine"),
    "maps.transport": ("TransportMap", "Members", "Way"),
    "maps.swap": ("SwapMap",),
    "fairtests.effect": ("Effect",),
    "fairtests.faux": ("FAux",),
    "fairtests.fta": ("FTA", "FTALinear"),
    "fairtests.unfair_map": ("UnfairMap",),
    "fairtests.unawareness": ("Unawareness",),
}
# rows of people, models, and what was looked up last; the file has none of them
_LEFT_OUT: dict[str, tuple[str, ...]] = {
    "Encoding": ("fitted_on",),
    "Dataset": ("y", "ids", "truth"),
    "AuxiliaryModel": ("held_out",),
    "FixedAuxiliary": ("held_out",),
    "LinearAuxiliary": ("held_out",),
    "Unawareness": ("target",),
    "_Places": ("asked",),
}
_LOOSE = {"ClassRanks": ("pairs",)}  # maps that were fitted together have ways of another class
_OF_PLAIN_CLASSES = {"AuxiliaryMember": ("net", "mask", "protected", "output"), "LinearMember": ("weights", "bias")}


def save_test(test: FittedTest, path: str | Path) -> None:
    """Write a fitted test to one file, whole or not at all."""
    content = to_bytes(test)
    try:
        with written_whole(Path(path)) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        reason = error.strerror or str(error)
        raise FileError(f"The test cannot be written to '{path}' ({reason}); choose another file") from error


def load_test(path: str | Path) -> FittedTest:
    """Return the fitted test in a file; a file that is damaged, changed or of a newer fairfox is refused."""
    path = Path(path)
    if not path.is_file():
        raise FileError(f"There is no file '{path}'; write one with fairfox fit")
    try:
        return from_bytes(path.read_bytes())
    except FileError as error:
        raise FileError(
            f"'{path.name}' is no fitted test that can be used: {error} (write another with fairfox fit)"
        ) from error


def to_bytes(test: FittedTest) -> bytes:
    """Return a fitted test as the bytes of a file."""
    from safetensors.torch import save

    writer = Writer(_kinds())
    writer.put(test)
    about = {"format": FORMAT, "fairfox": installed_versions("fairfox")["fairfox"], "test": test.name}
    text = json.dumps({**about, "nodes": writer.nodes}, allow_nan=False)
    content = save(writer.tensors, {_KEY: _checksum(text, writer.tensors) + text})
    if int.from_bytes(content[:8], "little") > _LARGEST_HEADER:
        raise OptionError("The test has too many parts for a file; fit it with fewer refits or protected classes")
    return content


def from_bytes(content: bytes, *, device: str = "cpu") -> FittedTest:
    """Return the fitted test in the bytes of a file; FileError says in a few words what is wrong with them."""
    from safetensors import SafetensorError
    from safetensors.torch import load

    claimed, text = _described(content)
    about = _about(text)
    try:
        tensors = load(content)
    except (SafetensorError, ValueError, RuntimeError, KeyError, OverflowError) as error:
        raise FileError("it is truncated or damaged") from error
    if any(max(tensor.shape, default=0) > len(content) for tensor in tensors.values()):
        raise FileError("it names sizes that it does not have")
    if claimed != _checksum(text, tensors):
        raise FileError("it was changed after it was written, since its checksum differs")
    # clones lie in memory as all of torch's tensors do, so that sums come out the same to the last bit
    made = read(about.get("nodes"), {name: tensor.clone() for name, tensor in tensors.items()}, _kinds())
    test = made[-1]
    if not isinstance(test, FittedTest):
        raise FileError("it holds no fitted test")
    check_whole(test, made)
    try_out(test)
    return test if device == "cpu" else _moved(test, about, tensors, device)


def _moved(test: FittedTest, about: dict[str, Any], tensors: dict[str, Tensor], device: str) -> FittedTest:
    """Return a test that was found whole with all its tensors on a device."""
    made = read(about.get("nodes"), {name: tensor.to(device) for name, tensor in tensors.items()}, _kinds())[-1]
    assert isinstance(made, FittedTest)
    return replace(made, encoding=test.encoding)  # tables are encoded on the processor


def _described(content: bytes) -> tuple[str, str]:
    """Return the checksum and the text in the header, after a look at its size."""
    length = int.from_bytes(content[:8], "little")
    if not 2 <= length <= min(len(content) - 8, _LARGEST_HEADER):
        raise FileError("it is truncated, or was not written by fairfox fit")
    header = _json(content[8 : 8 + length])
    texts = header.get("__metadata__") if isinstance(header, dict) else None
    if not isinstance(texts, dict) or list(texts) != [_KEY] or not isinstance(texts[_KEY], str):
        raise FileError("it was not written by fairfox fit")
    return texts[_KEY][:_HASH], texts[_KEY][_HASH:]


def _about(text: str) -> dict[str, Any]:
    """Return what the text says, where this version of fairfox can read it."""
    about = _json(text)
    written = about.get("format") if isinstance(about, dict) else None
    if type(written) is not int or written < 1:
        raise FileError("it does not say which version wrote it")
    if written > FORMAT:
        own = installed_versions("fairfox")["fairfox"]
        raise FileError(f"fairfox {about.get('fairfox')} wrote it, which is newer than {own}; upgrade fairfox")
    return dict(about)


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


@cache
def _kinds() -> dict[str, Kind]:
    """Return the classes of a test by their names in files."""
    out = {}
    for module, names in _CLASSES.items():
        for name in names:
            found = getattr(import_module(f"fairfox.{module}"), name)
            out[f"{module}.{name}"] = Kind.listed(
                found,
                stored=_OF_PLAIN_CLASSES.get(name, ()),
                left_out=_LEFT_OUT.get(name, ()),
                loose=_LOOSE.get(name, ()),
            )
    ranks = out["maps.ranks.Ranks"]
    out["maps.ranks.Ranks"] = Kind.listed(ranks.of, stored=("ordered",), rebuilt=True)  # the rest is an index of it
    return out

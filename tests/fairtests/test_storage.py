"""A fitted test in a file is the fitted test."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load, save
from support import fitted_on, header_of
from torch import Tensor

import fairfox
from fairfox.errors import FairfoxError, FileError, OptionError
from fairfox.fairtests import storage
from fairfox.fairtests.fitted import FittedTest
from fairfox.fairtests.storage import (
    StoredClass,
    check_consistent,
    from_bytes,
    load_test,
    read_nodes,
    save_test,
    to_bytes,
    try_out,
)
from fairfox.maps.ranks import Ranks

pytestmark = pytest.mark.brief

ALL = ("sex", "race", "age")
CASES: dict[str, dict[str, Any]] = {
    "number": {"protected": "age"},
    "several": {"protected": ["sex", "race"], "intersections": True},
    "held": {"protected": ["sex", "age"], "hold_others": True},
    "given and weighted": {"protected": "sex", "given": ["job", "debt"], "weights": "weight"},
    "cut": {"protected": "age<40", "columns": ["age", "income"]},
    "move": {"protected": "sex", "test": "move"},
    "move number": {"protected": "age", "test": "move", "settings": {"carry": 0.5}},
    "faux/s": {"protected": "race", "test": "faux/s"},
    "fta+linear": {"protected": "race", "test": "fta+linear"},
    "transport": {"protected": "race", "test": "transport", "settings": {"solver": "scipy"}},
    "unawareness": {"protected": "sex", "test": "unawareness", "columns": ["sex", "income"]},
}
MODEL = """
import numpy as np

def predict(table):
    men = 0.2 * (table["sex"] == "m") if "sex" in table else 0.0
    score = (table["income"].fillna(3000) - 3200) / 300 + men
    return 1 / (1 + np.exp(-score))
"""
ELSEWHERE = """
import sys
from pathlib import Path
import numpy as np
import fairfox
from model import predict

folder = Path(sys.argv[1])
for file in sorted(folder.glob("*.fox")):
    found = fairfox.score(fairfox.load_test(file), predict, folder / "new.parquet").record
    interval = found.scores if found.interval is None else found.interval
    np.savez(file.with_suffix(".npz"), scores=found.scores.numpy(), interval=interval.numpy())
"""


def people(size: int, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    male = rng.random(size) < 0.5
    return pa.table(
        {
            "sex": np.where(male, "m", "f"),
            "race": rng.choice(["a", "b", "c"], size),
            "age": rng.integers(18, 80, size).astype(float),
            "income": pa.array(rng.normal(3000 + 400 * male, 300), mask=rng.random(size) < 0.1),
            "debt": rng.normal(size=size) + male,
            "job": rng.choice(["x", "y", "z"], size),
            "weight": rng.integers(1, 4, size),
        }
    )


def fitted(**options: Any) -> FittedTest:
    read = options["protected"] if isinstance(options["protected"], list) else [options["protected"]]
    unused = [] if "columns" in options else [name for name in ALL if name not in read]
    unused += [] if "weights" in options or "columns" in options else ["weight"]
    return fitted_on(people(160, 0), refits=2, drop=unused, gate=False, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model, people to be scored, and one fitted test per case as it is in memory and in a file."""
    out = tmp_path_factory.mktemp("tests")
    (out / "model.py").write_text(MODEL)
    pq.write_table(people(60, 1), out / "new.parquet")
    return out


def predict(table: Any) -> Any:
    namespace: dict[str, Any] = {}
    exec(MODEL, namespace)
    return namespace["predict"](table)


def test_another_process_scores_a_new_table_exactly_as_the_test_in_memory_does(folder: Path):
    tests = {name: fitted(**options) for name, options in CASES.items()}
    for name, test in tests.items():
        save_test(test, folder / f"{name.replace('/', ' over ')}.fox")
    subprocess.run([sys.executable, "-c", ELSEWHERE, str(folder)], check=True, cwd=folder, timeout=300)
    for name, test in tests.items():
        found = fairfox.score(test, predict, folder / "new.parquet").record
        there = np.load(folder / f"{name.replace('/', ' over ')}.npz")
        np.testing.assert_array_equal(there["scores"], found.scores.numpy(), err_msg=name)  # NaN where NaN
        interval = found.scores if found.interval is None else found.interval  # of one refit there is none
        np.testing.assert_array_equal(there["interval"], interval.numpy(), err_msg=name)
        assert float(found.scores.abs().nansum()) > 0, name


@pytest.fixture(scope="module")
def test() -> FittedTest:
    return fitted(protected="sex")


@pytest.fixture(scope="module")
def content(test: FittedTest) -> bytes:
    return to_bytes(test)


def same(one: FittedTest, other: FittedTest, model: Any, table: pa.Table) -> bool:
    found, expected = (fairfox.score(test, model, table).record for test in (one, other))
    return torch.equal(found.scores, expected.scores) and torch.equal(found.interval, expected.interval)


def test_gradients_of_a_network_are_the_same_too():
    net = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1), torch.nn.Sigmoid())
    numbers = people(100, 0).select(["sex", "debt", "age", "weight"])
    for name in ("faux", "faux+ig", "rank", "unfair_map"):
        label = {"label": "y"} if name == "unfair_map" else {}
        table = numbers.append_column("y", pa.array([0, 1] * 50)) if label else numbers
        one = fitted_on(table, protected="sex", test=name, refits=2, **label)
        assert same(from_bytes(to_bytes(one)), one, net, table), name


def test_the_same_fit_gives_the_same_file(content: bytes):
    assert to_bytes(fitted(protected="sex")) == content
    assert to_bytes(from_bytes(content)) == content


def test_a_file_has_no_rows_of_people(content: bytes):
    sorted_values = {tuple(one.ordered.tolist()) for one in _parts(content, Ranks)}
    assert sorted_values
    assert all(list(values) == sorted(values) for values in sorted_values)
    widest = [t for t in load(content).values() if t.ndim == 2 and len(t) in (32, 128, 160)]  # held out, trained, all
    assert all(t.shape[1] <= 1 for t in widest)  # the protected values alone


def _parts(content: bytes, kind: type) -> list[Any]:
    nodes = header_of(content)["nodes"]
    return [one for one in read_nodes(nodes, load(content), storage._stored_classes()) if isinstance(one, kind)]


def refused(content: bytes, path: Path, message: str) -> None:
    path.write_bytes(content)
    with pytest.raises(FileError, match=message) as error:
        load_test(path)
    assert len(str(error.value).splitlines()) == 1


def test_a_file_that_was_cut_off_anywhere_is_refused(content: bytes, tmp_path: Path):
    for size in (0, 4, 8, 100, len(content) // 2, len(content) - 1):
        refused(content[:size], tmp_path / "test.fox", "'test.fox' is not a usable fitted test: it is truncated")


def test_a_file_with_one_changed_byte_is_refused_wherever_it_is(content: bytes, tmp_path: Path):
    for place in np.random.default_rng(0).integers(0, len(content), 30).tolist():
        changed = bytearray(content)
        changed[place] ^= 1
        refused(bytes(changed), tmp_path / "test.fox", "is not a usable fitted test")
    refused(content[:-1] + bytes([content[-1] ^ 1]), tmp_path / "test.fox", "its checksum differs")


def rewritten(content: bytes, change: Any, **tensors: torch.Tensor) -> bytes:
    """Return a file whose text or tensors are others, with a checksum that is right."""
    about = header_of(content)
    change(about)
    text, kept = json.dumps(about), {**load(content), **tensors}
    return save(kept, {storage._KEY: storage._checksum(text, kept) + text})


def test_a_file_of_another_format_is_refused(content: bytes, tmp_path: Path):
    newer = rewritten(content, lambda about: about.update(format=storage.FORMAT + 1, fairfox="9.0"))
    refused(newer, tmp_path / "test.fox", "fairfox 9.0 wrote it, which is newer than .*; upgrade fairfox")
    older = rewritten(content, lambda about: about.update(format=1, fairfox="0.1"))
    again = r"fairfox 0.1 wrote it in an older format \(write it again with fairfox fit\)"
    refused(older, tmp_path / "test.fox", again)


def node_of(about: dict[str, Any], name: str) -> dict[str, Any]:
    return next(node[1] for node in about["nodes"] if node[0] == name)


def emptied(about: dict[str, Any], name: str) -> None:
    about["nodes"][node_of(about, "fairtests.fitted.FittedTest")[name]["node"]][1] = []


def other_test(about: dict[str, Any]) -> None:
    """Put a column where a test belongs."""
    tests = about["nodes"][node_of(about, "fairtests.fitted.FittedTest")["tests"]["node"]][1]
    tests[0][1] = {"node": next(k for k, node in enumerate(about["nodes"]) if node[0] == "data.dataset.Feature")}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda about: about["nodes"].append(["os.system", {}]), "'os.system', which is not part of any test"),
        (lambda about: about["nodes"].pop(), "holds no fitted test"),
        (lambda about: about.pop("nodes"), "it is empty"),
        (lambda about: node_of(about, "data.dataset.Feature").update(stop=10**12), "do not fit together"),
        (lambda about: node_of(about, "data.dataset.Feature").update(start="0"), "'start' of a .* wrong type"),
        (lambda about: node_of(about, "maps.rank.RankMap").update(shared=-1.0), "has other fields than here"),
        (
            lambda about: node_of(about, "options.AuditOptions").update(test="nothing"),
            r"cannot be read \(OptionError\)",
        ),
        (lambda about: node_of(about, "options.AuditOptions").update(test="faux"), "do not fit together"),
        (lambda about: node_of(about, "options.AuditOptions").update(seed=None), "'seed' of a .* wrong type"),
        (
            lambda about: node_of(about, "fairtests.effect.Effect").update(seed=10**30),
            "'seed' in it is not between 0 and",
        ),
        (
            lambda about: node_of(about, "fairtests.effect.Effect").update(batch_size=0),
            "'batch_size' in it is not between",
        ),
        (lambda about: node_of(about, "maps.move.MoveMap").update(steps=10**9), "'steps' in it is not between 1 and"),
        (lambda about: emptied(about, "proxy"), "do not fit together"),
        (lambda about: emptied(about, "quality"), "do not fit together"),
        (lambda about: node_of(about, "data.sources.Values").update(rest=7), "do not fit together"),
        (lambda about: other_test(about), r"do not fit together \(AttributeError\)"),
        (lambda about: about.update(format="1"), "does not say which version"),
    ],
)
def test_a_file_made_by_hand_is_refused_though_its_checksum_is_right(
    content: bytes, tmp_path: Path, change: Any, message: str
):
    refused(rewritten(content, change), tmp_path / "test.fox", message)


def test_tensors_of_wrong_shapes_are_refused_or_change_nothing_that_fails(content: bytes):
    refusals = 0
    for name, tensor in list(load(content).items())[::3]:
        for other in (tensor[:0], tensor[None], torch.cat([tensor, tensor], -1)) if tensor.ndim else ():
            changed = rewritten(content, lambda about: None, **{name: other.clone()})
            try:
                fairfox.score(from_bytes(changed), predict, people(20, 1))
            except FairfoxError:  # anything else fails here
                refusals += 1
    assert refusals > 10


def test_sizes_that_a_file_does_not_have_are_refused_before_they_are_allocated(content: bytes, tmp_path: Path):
    huge = rewritten(content, lambda about: None, more=torch.zeros(0, 2**40))
    refused(huge, tmp_path / "test.fox", "sizes do not match its contents")
    length = (2**62).to_bytes(8, "little")
    refused(length + content[8:], tmp_path / "test.fox", "truncated")
    claimed = (
        b'{"0":{"dtype":"F64","shape":[1000000000000],"data_offsets":[0,8000000000000]},"__metadata__":{"%s":"%s"}}'
    )
    header = claimed % (storage._KEY.encode(), b"0" * 64 + b'{\\"format\\":%d}' % storage.FORMAT)
    refused(len(header).to_bytes(8, "little") + header, tmp_path / "test.fox", "truncated or damaged")


def test_sizes_that_would_take_all_memory_are_refused(tmp_path: Path):
    given = to_bytes(fitted(protected="sex", given=["debt"]))
    changed = rewritten(given, lambda about: node_of(about, "maps.conditional.Terms").update(classes=10**9))
    refused(changed, tmp_path / "test.fox", "'classes' in it is not between 0 and")


@pytest.mark.parametrize("name", ["a model", "a table", "a folder", "nothing"])
def test_another_file_is_refused(name: str, tmp_path: Path):
    path = tmp_path / "test.fox"
    if name == "a model":
        path.write_bytes(save({"0.weight": torch.zeros(1, 1)}))
    elif name == "a table":
        pq.write_table(people(5, 0), path)
    elif name == "a folder":
        path.mkdir()
    with pytest.raises(FileError, match=r"was not written by fairfox|There is no file"):
        load_test(path)


def test_a_test_that_holds_more_than_numbers_is_not_written(test: FittedTest, tmp_path: Path):
    strange = {**test.__dict__, "tests": {**test.tests, "own": lambda: None}}
    with pytest.raises(OptionError, match="contains a function, which cannot be stored"):
        save_test(FittedTest(**strange), tmp_path / "test.fox")
    assert not (tmp_path / "test.fox").exists()


TWO = ["sex", "age"]


@pytest.fixture(scope="module")
def two() -> FittedTest:
    return fitted(protected=TWO)


def test_crossings_of_crossings_are_refused(two: FittedTest):
    crossing = fitted(protected=["sex", "race"], intersections=True).encoding.sources[-1].reader
    nested = replace(crossing, parts=(replace(crossing.parts[0], reader=crossing),) * 2)  # costs double each time
    check_consistent(two, [crossing])
    with pytest.raises(FileError, match="do not fit together"):
        check_consistent(two, [nested])


def test_a_test_that_cannot_measure_anybody_is_refused(two: FittedTest):
    try_out(two)
    with pytest.raises(FileError, match=r"do not fit together \(RuntimeError\)"):
        try_out(replace(two, metric=torch.zeros(1, 1, dtype=torch.float64)))


class Pair(NamedTuple):
    low: int
    high: int


@dataclass(frozen=True)
class Sorted:
    ordered: Tensor
    count: int

    @classmethod
    def of(cls, values: Tensor) -> Sorted:
        return cls(values.sort().values, len(values))


CLASSES = {"Pair": StoredClass(Pair, ("low", "high")), "Sorted": StoredClass(Sorted, ("ordered",), rebuilt=True)}


def refused_nodes(nodes: object, message: str, **tensors: Tensor) -> None:
    with pytest.raises(FileError, match=message):
        read_nodes(nodes, tensors, CLASSES)


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        ([["list", [{"node": 0}]]], "does not refer to one before it"),  # itself
        ([["list", [{"float": "1e400"}]]], "does not refer to one before it"),
        ([["list", [[1]]]], "neither a value"),
        ([["tensor", "9"]], "cannot be read"),
        ([["network", [1, 2]]], "cannot be read"),
        ([["dict", [[1.5, 1]]]], "a key in it is neither a number nor text"),
        ([["Pair", {"low": 1}]], "'Pair' in it has other fields"),
        ([["Pair", {"low": 1, "high": 2, "__class__": 3}]], "'Pair' in it has other fields"),
        ([["Pair", {"low": 1, "high": "2"}]], "'high' of a 'Pair' in it has the wrong type"),
        ([["Sorted", {"ordered": 1}]], "'ordered' of a 'Sorted' in it has the wrong type"),
    ],
)
def test_nodes_that_are_not_what_they_should_be_are_refused(nodes: object, message: str):
    refused_nodes(nodes, message)


def test_one_tensor_cannot_be_blown_up_into_many_objects():
    one = [["tensor", "a"], ["Sorted", {"ordered": {"node": 0}}]]
    assert read_nodes(one, {"a": torch.zeros(100)}, CLASSES)[-1].count == 100
    refused_nodes([*one, one[1]], "sizes do not match its contents", a=torch.zeros(100))


def test_a_key_whose_hash_would_take_for_ever_is_refused():
    nodes: list[list[Any]] = [["tuple", []]]
    nodes += [["tuple", [{"node": k}] * 2] for k in range(60)]  # 2 ** 60 parts
    refused_nodes([*nodes, ["dict", [[{"node": 60}, 1]]]], "a key in it is neither a number nor text")

"""Which columns act on which: the graphs that users give."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from fairfox.data.dataset import Dataset
from fairfox.errors import ColumnError, FileError, OptionError, did_you_mean

_EXAMPLE = 'for example income = ["sex", "education"]'


@dataclass(frozen=True)
class Graph:
    """Which columns act on which: the parents of every column that has any, parents before their children."""

    parents: Mapping[str, tuple[str, ...]]

    @property
    def names(self) -> list[str]:
        """All columns that the graph names."""
        return list(dict.fromkeys(name for child, parents in self.parents.items() for name in (*parents, child)))

    def descendants(self, names: Iterable[str], *, held: Iterable[str] = ()) -> list[str]:
        """Return what these act on, directly or through others, parents first; nothing acts on what is held."""
        reached, held, out = set(names), set(held), []
        for child, parents in self.parents.items():
            if child not in held and not reached.isdisjoint(parents):
                reached.add(child)
                out.append(child)
        return out


GraphSource = Graph | Mapping[str, Sequence[str]] | str | Path


def read_graph(source: GraphSource | None) -> Graph:
    """Return the graph of a dict {column: [its parents]}, or of a TOML file with such a table named `parents`.

    Example:
        >>> read_graph({"income": ["sex", "job"], "job": ["sex"]}).parents
        {'job': ('sex',), 'income': ('sex', 'job')}
    """
    if source is None:
        raise OptionError(f"No graph is given; say which columns act on which: a dict or a TOML file, {_EXAMPLE}")
    if isinstance(source, Graph):
        return source
    found = source if isinstance(source, Mapping) else _read_table(Path(source))
    for child, parents in found.items():
        if (
            isinstance(parents, str)
            or not isinstance(parents, Sequence)
            or not all(isinstance(p, str) for p in parents)
        ):
            raise OptionError(
                f"The graph gives '{child}' the parents {parents!r}; expected a list of names, {_EXAMPLE}"
            )
        if twice := [name for name in parents if parents.count(name) > 1]:
            raise OptionError(f"The graph names '{twice[0]}' twice among the parents of '{child}'; name it once")
    if not any(found.values()):
        raise OptionError(f"The graph is empty; give the parents of at least one column, {_EXAMPLE}")
    try:
        order = list(TopologicalSorter(found).static_order())
    except CycleError as error:
        circle = " -> ".join(error.args[1])
        raise OptionError(f"The graph goes in a circle: {circle}; leave out one of these arrows") from None
    return Graph({name: tuple(found[name]) for name in order if found.get(name)})


def check_names(graph: Graph, data: Dataset) -> None:
    """Refuse a graph that names what is neither a column of the model nor a protected variable."""
    variables = {p.name: p for p in data.protected}
    columns = [f.name for f in data.features]
    for name in graph.names:
        if name in variables and not variables[name].parts:
            continue
        if name in variables:
            raise OptionError(
                f"The graph names the crossing '{name}'; name {' and '.join(variables[name].parts)} instead"
            )
        read = [p.name for p in data.protected if p.source == name]
        if read:
            raise OptionError(
                f"The graph names '{name}', from which the protected variable '{read[0]}' is read; name '{read[0]}' "
                "instead"
            )
        if name not in columns:
            hint = did_you_mean(name, [*variables, *columns])
            raise ColumnError(f"The graph names '{name}', which is no column of the model and not protected.{hint}")


def _read_table(path: Path) -> Mapping[str, Sequence[str]]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise FileError(f"The graph '{path}' cannot be read ({error.strerror}); give a TOML file") from error
    except ValueError as error:
        raise FileError(f"The graph '{path}' is not TOML: {error}") from error
    parents = found.get("parents")
    if not isinstance(parents, dict):
        raise FileError(f"The graph '{path}' has no table [parents]; list the parents of columns there, {_EXAMPLE}")
    return parents

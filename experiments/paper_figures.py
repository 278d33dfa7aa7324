"""Two pictures of the fAux paper, drawn anew with fairfox's own functions.

`four_points`: where a target and an auxiliary have which gradients, and what fAux makes of them. `pseudo_inverse`: why
the step that changes the protected variable by one is unique on a line, and not in the plane.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import torch
from runner import write_json
from torch import Tensor

from fairfox.auxiliary.linear import LinearMember
from fairfox.auxiliary.model import FixedAuxiliary
from fairfox.data.dataset import Dataset
from fairfox.fairtests.faux import FAux
from fairfox.gradients.alignment import inverse_direction
from fairfox.gradients.jacobian import jacobian

IMAGES = Path(__file__).parents[1] / "docs" / "images"
POINTS = torch.tensor([[2.0, 0.0], [0.0, 2.0], [-2.0, 2.0], [0.0, 0.2]], dtype=torch.float64)
WEIGHTS = torch.tensor([[1.2, 1.6]], dtype=torch.float64)  # of the linear auxiliary: its slope is 2
REACH = 0.5  # how far the other solutions lie from the smallest one
EDGE, CELLS = 3.0, 16  # of the maps in the picture
Chart = Any  # altair types its own charts loosely
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#888888"


class Formula:
    """A formula in x (N, 2), seen as a Model with one output."""

    differentiable = True

    def __init__(self, formula: Callable[[Tensor], Tensor]) -> None:
        self.formula = formula

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs (N, 1)."""
        return self.formula(x)[:, None]


# Gradients (1 + 0.24 x1 - 0.12 x1², 0) and (x2, x1): orthogonal, parallel, and each small once at the four points.
TARGET = Formula(lambda x: x[:, 0] + 0.12 * x[:, 0] ** 2 - 0.04 * x[:, 0] ** 3)
AUXILIARY = Formula(lambda x: x[:, 0] * x[:, 1])


def four_points() -> list[dict[str, Any]]:
    """Return for each point its gradients, their inner product, and the scores of faux and faux+ng."""
    people = Dataset.from_arrays(POINTS, c=[0, 1, 0, 1])
    gradients = [jacobian(model, POINTS)[:, 0] for model in (TARGET, AUXILIARY)]
    fixed = FixedAuxiliary([AUXILIARY])
    columns = {"x": POINTS, "target": gradients[0], "auxiliary": gradients[1]}
    columns["inner"] = (gradients[0] * gradients[1]).sum(1)
    columns |= {
        name: FAux(auxiliary=fixed, normalise=n).score(TARGET, people)
        for name, n in (("faux", False), ("faux+ng", True))
    }
    return [{"point": i + 1} | {name: own[i].tolist() for name, own in columns.items()} for i in range(len(POINTS))]


def pseudo_inverse() -> dict[str, Any]:
    """Return the smallest steps that change c by one, on a line and in the plane, and others that do so too."""
    slope = WEIGHTS.norm()
    on_line = inverse_direction(slope.reshape(1, 1, 1))[0, :, 0]
    step = inverse_direction(WEIGHTS[None])[0, :, 0]  # (2,)
    across = torch.stack([-WEIGHTS[0, 1], WEIGHTS[0, 0]]) / slope
    steps = [step + length * across for length in (-REACH, 0.0, REACH)]
    member = LinearMember(WEIGHTS, torch.zeros(1, dtype=torch.float64))
    found = {"slope": float(slope), "step_on_line": float(on_line[0]), "gradient": WEIGHTS[0].tolist()}
    each = [{"step": s.tolist(), "length": float(s.norm()), "change": float(member(s[None])[0, 0])} for s in steps]
    return found | {"steps": each}


def _field(name: str, title: str, *, edges: tuple[float, float] = (-EDGE, EDGE)) -> dict[str, Any]:
    """Return the encoding of one axis."""
    shorthand = alt.X if name.startswith("x") else alt.Y
    return {name: shorthand(f"{name}:Q", title=title, scale=alt.Scale(domain=list(edges), nice=False))}


def _arrows(rows: Sequence[tuple[Sequence[float], Sequence[float], str]]) -> Chart:
    """Return arrows: where each begins, how far it goes, and its colour."""
    values = [
        {"x": x, "y": y, "x2": x + dx, "y2": y + dy, "color": color}
        | {"angle": 90 - math.degrees(math.atan2(dy, dx))}  # clockwise from up
        for (x, y), (dx, dy), color in rows
    ]
    base = alt.Chart(alt.InlineData(values=values))
    color = alt.Color("color:N", scale=None)
    lines = base.mark_rule(strokeWidth=2.5).encode(x="x:Q", y="y:Q", x2="x2:Q", y2="y2:Q", color=color)
    heads = base.mark_point(shape="triangle", filled=True, size=90, opacity=1)
    heads = heads.encode(x="x2:Q", y="y2:Q", angle=alt.Angle("angle:Q", scale=None), color=color)
    return lines + heads


def _labels(rows: Sequence[dict[str, Any]], *, dy: int = -10, dx: int = 0) -> Chart:
    """Return texts at their x and y."""
    text = alt.Chart(alt.InlineData(values=list(rows))).mark_text(dy=dy, dx=dx, fontSize=12, fontWeight="bold")
    return text.encode(x="x:Q", y="y:Q", text="text:N")


def _map(model: Formula, which: str, title: str, found: Sequence[dict[str, Any]]) -> Chart:
    """Return a model's outputs over the plane, with its gradients at the four points."""
    size = 2 * EDGE / CELLS
    lows = [-EDGE + i * size for i in range(CELLS)]
    grid = torch.tensor([[a + size / 2, b + size / 2] for a in lows for b in lows], dtype=torch.float64)
    cells = [
        {"x": a - size / 2, "y": b - size / 2, "x2": a + size / 2, "y2": b + size / 2, "out": out}
        for (a, b), out in zip(grid.tolist(), model(grid)[:, 0].tolist(), strict=True)
    ]
    shade = alt.Color("out:Q", scale=alt.Scale(scheme="greys"), legend=None)
    plane = alt.Chart(alt.InlineData(values=cells)).mark_rect(opacity=0.5)
    plane = plane.encode(**_field("x", "x1"), **_field("y", "x2"), x2="x2:Q", y2="y2:Q", color=shade)
    arrows = _arrows([(one["x"], [0.5 * g for g in one[which]], GREEN) for one in found])
    dots = [{"x": one["x"][0], "y": one["x"][1], "text": str(one["point"])} for one in found]
    points = alt.Chart(alt.InlineData(values=dots)).mark_circle(size=70, color=BLUE, opacity=1).encode(x="x:Q", y="y:Q")
    layers = alt.layer(plane, arrows, points, _labels(dots, dx=-9)).resolve_scale(color="independent")
    return layers.properties(width=260, height=260, title=title)


def draw_four_points() -> alt.HConcatChart:
    """Return the picture of the four points: the target, the auxiliary, and the scores."""
    found = four_points()
    names = {"inner": "inner product", "faux": "faux", "faux+ng": "faux+ng"}
    cells = [
        {"column": title, "point": f"point {one['point']}", "text": f"{one[name]:.2f}"}
        for one in found
        for name, title in names.items()
    ]
    table = alt.Chart(alt.InlineData(values=cells)).mark_text(fontSize=13)
    table = table.encode(
        x=alt.X("column:N", title=None, sort=list(names.values()), axis=alt.Axis(orient="top", labelAngle=0)),
        y=alt.Y("point:N", title=None),
        text="text:N",
    ).properties(width=220, height=150, title="c) what is made of the two gradients")
    maps = [
        _map(TARGET, "target", "a) target, with its gradients", found),
        _map(AUXILIARY, "auxiliary", "b) auxiliary, with its gradients", found),
    ]
    return alt.hconcat(*maps, table)


def draw_pseudo_inverse() -> alt.HConcatChart:
    """Return the picture of the pseudo-inverse: one step on a line, a whole line of steps in the plane."""
    found = pseudo_inverse()
    return alt.hconcat(_on_line(found["slope"], found["step_on_line"]), _in_plane(found["steps"]))


def _on_line(slope: float, step: float) -> Chart:
    ends = [{"x": x, "y": slope * x} for x in (-0.2, 0.8)]
    line = alt.Chart(alt.InlineData(values=ends)).mark_line(color=GREY)
    axes = {**_field("x", "x", edges=(-0.3, 1.0)), **_field("y", "auxiliary's output", edges=(-0.5, 2.0))}
    arrows = _arrows([((0.0, 0.0), (step, 0.0), BLUE), ((step, 0.0), (0.0, 1.0), ORANGE)])
    words = [{"x": step / 2, "y": 0, "text": f"step {step:g}"}, {"x": step + 0.17, "y": 0.5, "text": "change 1"}]
    layers = alt.layer(line.encode(**axes), arrows, _labels(words))
    return layers.properties(width=260, height=260, title=f"a) one input, slope {slope:g}")


def _in_plane(steps: Sequence[dict[str, Any]]) -> Chart:
    (ax, ay), (bx, by) = steps[0]["step"], steps[-1]["step"]
    smallest = steps[len(steps) // 2]["step"]
    kept = [  # where the output is 0, and where it is 1
        {"x": start[0] + t * (bx - ax), "y": start[1] + t * (by - ay), "level": name}
        for start, name in (((0.0, 0.0), "0"), (smallest, "1"))
        for t in (-0.9, 0.9)
    ]
    axes = {**_field("x", "x1", edges=(-0.7, 1.0)), **_field("y", "x2", edges=(-0.7, 1.0))}
    lines = alt.Chart(alt.InlineData(values=kept)).mark_line(color=GREY, strokeDash=[5, 4])
    arrows = _arrows([((0.0, 0.0), one["step"], BLUE if one["step"] == smallest else ORANGE) for one in steps])
    words = [{"x": one["step"][0], "y": one["step"][1], "text": f"length {one['length']:.2f}"} for one in steps]
    layers = alt.layer(lines.encode(**axes, detail="level:N"), arrows, _labels(words, dx=40, dy=-6))
    return layers.properties(width=260, height=260, title="b) two inputs: each step changes the output by 1")


def main(arguments: Sequence[str] | None = None) -> None:
    """Write both pictures as PNG and SVG, and their numbers as JSON."""
    parser = argparse.ArgumentParser(description="The four-point picture and the pseudo-inverse picture of the paper.")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder; default: docs/images")
    out: Path = parser.parse_args(arguments).out
    out.mkdir(parents=True, exist_ok=True)
    for name, chart in (("four_points", draw_four_points()), ("pseudo_inverse", draw_pseudo_inverse())):
        chart.save(str(out / f"{name}.png"), scale_factor=1)
        chart.save(str(out / f"{name}.svg"))
    write_json(out / "paper_figures.json", {"four_points": four_points(), "pseudo_inverse": pseudo_inverse()})


if __name__ == "__main__":
    main()

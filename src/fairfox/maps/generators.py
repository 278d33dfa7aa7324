"""Trained generators of FlipTest's map: how they make rows, when they are poor, and how they are saved."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from fairfox.data.dataset import Dataset, Feature, Protected
from fairfox.data.files import written_whole
from fairfox.errors import DataError, FileError, OptionError
from fairfox.maps.columns import features_among
from fairfox.maps.protocol import Pair
from fairfox.maps.rank import RankMap
from fairfox.nets.mlp import MLP

_FORMAT = 1  # of saved folders
_TENSORS, _ABOUT = "gan.safetensors", "gan.json"
_POOR_KS, _POOR_WORST, _POOR_MSE = 0.1, 0.2, 2.0  # above chance, twice, and times that of real people


@dataclass(frozen=True)
class Fitted:
    """What training gave: the generators, on which columns they work, and how good they are."""

    columns: Tensor  # (S,): numbers that vary, and one-hot blocks
    generators: dict[Pair, nn.Sequential]
    withheld: Dataset | None  # the fitting people's withheld columns and own classes
    checks: dict[str, float] = field(default_factory=dict)

    def generate(self, x: Tensor, pair: Pair) -> Tensor:
        """Return rows (n, D) with their columns generated anew, before blocks are put back."""
        if pair not in self.generators:
            raise OptionError(
                f"No generator was trained from class {pair[0]} to class {pair[1]}; the variable has a reference "
                "group, and only pairs with it are"
            )
        here = x.index_select(1, self.columns)
        net = self.generators[pair]
        return x.index_copy(1, self.columns, net(here.to(next(net.parameters()))).to(x))

    @cached_property
    def ranks(self) -> RankMap | None:
        """What sets withheld columns to the other group's values."""
        return None if self.withheld is None else RankMap().fit(self.withheld)

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that is a tensor, by name."""
        out = {"columns": self.columns}
        for (own, other), net in self.generators.items():
            out |= {f"generator.{own}.{other}.{name}": value for name, value in net.state_dict().items()}
        if self.withheld is not None:
            out |= {"withheld.x": self.withheld.x, "withheld.c": self.withheld.c}
        return out

    def description(self) -> dict[str, Any]:
        """Return everything else."""
        about: dict[str, Any] = {"pairs": [list(pair) for pair in self.generators], "checks": self.checks}
        if self.withheld is not None:
            about["features"] = [asdict(f) for f in self.withheld.features]
            about["protected"] = asdict(self.withheld.protected[0])
        return about

    @classmethod
    def restored(cls, about: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Fitted:
        """Return what was described."""
        columns, settings = tensors["columns"], about["settings"]
        generators = {}
        for own, other in about["pairs"]:
            start = f"generator.{own}.{other}."
            state = {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}
            net = MLP(len(columns), len(columns), width=settings["width"], depth=settings["depth"]).member(0)
            net.to(state["0.weight"]).load_state_dict(state)
            generators[own, other] = net.requires_grad_(False)
        withheld = None
        if "features" in about:
            features = tuple(Feature(**{**f, "levels": tuple(f["levels"])}) for f in about["features"])
            p = about["protected"]
            own_group = Protected(**{**p, "levels": tuple(p["levels"]), "parts": tuple(p["parts"])})
            withheld = Dataset(tensors["withheld.x"], tensors["withheld.c"], (own_group,), features)
        return cls(columns, generators, withheld, dict(about["checks"]))


def doubts_about(checks: Mapping[str, float]) -> list[str]:
    """Return a sentence for each check of generators that is poor; one that is no number is."""
    if not all(math.isfinite(number) for number in checks.values()):
        return [
            "FlipTest's generators diverged: they make rows that are not finite, and these people are not judged; "
            "choose a smaller `rate`."
        ]
    out = []
    chance = f"chance {checks['ks_chance']:.2f}, before mapping {checks['ks_unmapped']:.2f}"
    if not checks["ks"] <= checks["ks_chance"] + _POOR_KS:
        out.append(
            f"FlipTest's mapped people differ from the real people of the group they go to: mean KS distance of the "
            f"features {checks['ks']:.2f} ({chance}); train longer or choose another `weight`."
        )
    elif not checks["ks_worst"] <= checks["ks_chance"] + _POOR_WORST:
        out.append(
            f"FlipTest's mapped people differ from the real people of the group they go to in one direction at least: "
            f"mean KS distance of the features {checks['ks_worst']:.2f} ({chance}; {checks['ks']:.2f} over all "
            "directions); train longer or choose another `weight`."
        )
    if not checks["mse"] <= _POOR_MSE * max(checks["mse_real"], 1e-3):
        out.append(
            f"FlipTest's mapped people combine features as real people do not: regressions of each feature on the "
            f"others miss by {checks['mse']:.3f} on them and by {checks['mse_real']:.3f} on real people (mean squared "
            "error); train longer or choose another `weight`."
        )
    return out


def in_units(net: nn.Sequential, centre: Tensor, scale: Tensor) -> nn.Sequential:
    """Return the network on x that equals centre + scale · net((x - centre) / scale), in the dtype of the scale."""
    net = net.to(scale)
    first, last = net[0], net[-1]
    assert isinstance(first, nn.Linear)
    assert isinstance(last, nn.Linear)
    with torch.no_grad():
        first.weight.div_(scale)
        first.bias.sub_(first.weight @ centre)
        last.weight.mul_(scale[:, None])
        last.bias.mul_(scale).add_(centre)
    return net.requires_grad_(False)


def seen_columns(data: Dataset, *, standardise: bool = True) -> tuple[Tensor, Tensor, Tensor]:
    """Return the columns (S,) that generators see, and what is their zero and one.

    Not withheld columns, those that only say that a value is missing, and constant numbers.
    """
    mean, spread, withheld = data.x.mean(0), data.x.std(0, correction=0), data.withheld.tolist()
    varies = (spread > 0).tolist()
    numbers = {f.start for f in data.features if f.kind == "continuous" and varies[f.start]}
    levels = {j for f in data.features if f.kind == "categorical" for j in range(f.start, f.stop)}
    seen = sorted(j for j in numbers | levels if not withheld[j])
    if not seen:
        raise DataError("No column is left for FlipTest to map: all are withheld or constant; use rank instead")
    columns = torch.tensor(seen, device=data.x.device)
    is_number = torch.tensor([standardise and j in numbers for j in seen], device=data.x.device)
    return columns, torch.where(is_number, mean[columns], 0.0), torch.where(is_number, spread[columns], 1.0)


def only_withheld(data: Dataset, variable: int) -> Dataset:
    """Return people with their withheld columns and one protected variable alone."""
    x, features = data.x[:, data.withheld.to(data.x.device)], features_among(data.features, data.withheld)
    return Dataset(x, data.c[:, [variable]], (data.protected[variable],), features)


def write_map(folder: Path, settings: Mapping[str, Any], fitted: Fitted) -> None:
    """Write generators and the settings they were trained with: tensors as safetensors, everything else as JSON."""
    from safetensors.torch import save_file

    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in fitted.tensors().items()}
    about = {"format": _FORMAT, "settings": settings, **fitted.description()}
    with written_whole(folder / _TENSORS) as temporary:
        save_file(tensors, temporary)
    with written_whole(folder / _ABOUT) as temporary:
        temporary.write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def read_map(folder: Path, device: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return what `write_map` wrote in a folder: the description and, on a device, the tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    if missing := [name for name in (_ABOUT, _TENSORS) if not (folder / name).is_file()]:
        raise FileError(f"There is no '{missing[0]}' in {folder}; give a folder that GanMap.save wrote")
    try:
        about = json.loads((folder / _ABOUT).read_text(encoding="utf-8"))
        tensors = load_file(folder / _TENSORS, device=device)
    except (ValueError, RecursionError, SafetensorError) as error:
        raise FileError(f"The map in {folder} is damaged ({error}); save it again") from error
    if not isinstance(about, dict) or about.get("format") != _FORMAT:
        found = about.get("format") if isinstance(about, dict) else None
        raise FileError(f"'{_ABOUT}' in {folder} has format {found}; this version of fairfox reads {_FORMAT}")
    return about, tensors

"""The public datasets fairfox knows, from `catalog.toml`: their files and columns, and what each is for.

`fairfox.data.datasets` has their loaders, which say what is wrong with each. The list alone needs no torch.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from fairfox.data.files import DataFile, data_home, find_file
from fairfox.errors import OptionError, did_you_mean


@dataclass(frozen=True)
class PublicDataset:
    """A public dataset: its loader, which says what is wrong with it, its files, and what it is for."""

    loader: str
    files: tuple[DataFile, ...]
    columns: tuple[str, ...]  # that are read, in the order of the files
    purpose: str
    codes: Mapping[str, Mapping[str, str]]  # of some columns, and what they mean

    @property
    def availability(self) -> str:
        """Where it is, or how to get it."""
        places = [find_file(file) for file in self.files]
        if all(places):
            home = data_home()
            return "in FAIRFOX_DATA" if all(place and place.parent == home for place in places) else "in the cache"
        return "can be downloaded" if all(file.address for file in self.files) else "must be downloaded by hand"


DATASETS: dict[str, PublicDataset] = {
    name: PublicDataset(
        loader=entry["loader"],
        files=tuple(DataFile(**{**file, "names": tuple(file["names"])}) for file in entry["files"]),
        columns=tuple(entry["columns"]),
        purpose=entry["purpose"],
        codes=entry.get("codes", {}),
    )
    for name, entry in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


def find_dataset(name: str) -> PublicDataset:
    """Return the dataset of this name, or raise an OptionError that suggests the closest one."""
    if name not in DATASETS:
        raise OptionError(f"There is no dataset '{name}'.{did_you_mean(name, list(DATASETS))}")
    return DATASETS[name]

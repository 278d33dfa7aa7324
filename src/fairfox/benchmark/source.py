"""A source: a generator of the mode probabilities of a table with a label."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fairfox.benchmark.cvae import ConditionalVAE, Training, relative_spread, train_vae
from fairfox.benchmark.fusion import Block
from fairfox.choices.kinds import Number
from fairfox.data.dataset import Dataset
from fairfox.data.table import Series, column, floats, levels_of, load_table, missing, places_of
from fairfox.errors import DataError

_log = logging.getLogger("fairfox")

_COLLAPSED = 0.25  # of the real spread: below it the latent hardly matters, and people hardly differ
_FEWEST = 2  # rows a class must have


def whole_number(name: str, value: object, *, least: int = 1) -> int:
    """Return an option that must be a whole number, or raise an OptionError that names it."""
    return int(Number(least, whole=True).required(name, value))


def positive_number(name: str, value: object) -> float:
    """Return an option that must be a finite number above 0, or raise an OptionError."""
    return float(Number(0, low_open=True).required(name, value))


@dataclass(frozen=True)
class SourceSettings:
    """How a table is modelled: modes per feature, the networks, and the weight of the divergence."""

    modes: int = 3
    width: int = 128
    depth: int = 2
    kl_weight: float = 0.1
    latent: int = 8

    def __post_init__(self) -> None:
        for name in ("modes", "width", "depth", "latent"):
            whole_number(name, getattr(self, name))
        positive_number("kl_weight", self.kl_weight)


def source_of(table: object, *, label: str) -> Dataset:
    """Return a table as a source of `SyntheticBias`: its columns of numbers as x, its label as y.

    Numbers stay in their own units. A label of texts becomes class numbers in alphabetical order; of two classes, the
    second is 1.

    Args:
        table: a CSV, Parquet or Arrow file, a pandas, polars or pyarrow table, or a 2-D array.
        label: the column with each row's class; of the others, those without numbers are left out.

    Example:
        >>> import pyarrow as pa
        >>> table = pa.table({"age": [31, 45, 28], "town": ["Ulm", "Bonn", "Ulm"], "paid": ["yes", "no", "yes"]})
        >>> source = source_of(table, label="paid")
        >>> source.names, source.y.tolist()
        (('age',), [1.0, 0.0, 1.0])
    """
    frame = load_table(table)
    classes = _complete(column(frame, label), label)
    y = floats(classes) if classes.dtype.is_numeric() else places_of(classes, levels_of(classes))
    others = [name for name in frame.columns if name != label]
    names = [name for name in others if frame.schema[name].is_numeric()]
    if left_out := [name for name in others if name not in names]:
        _log.info("Columns without numbers are left out: %s", ", ".join(left_out))
    if not names:
        raise DataError(f"The table has no column of numbers beside the label '{label}'; a source needs at least one")
    x = np.column_stack([floats(_complete(column(frame, name), name)) for name in names])
    return Dataset.from_arrays(x, None, y.astype(float), names=names)


def _complete(series: Series, name: str) -> Series:
    if gaps := int(missing(series).sum()):
        raise DataError(f"Column '{name}' has {gaps} missing value(s); drop those rows or fill them in first")
    return series


@dataclass(frozen=True)
class ModeEncoding:
    """One Gaussian mixture for each of F features, all with G modes: (N, F) -> (N, F * G), each block summing to 1.

    A feature with fewer than G different values has as many modes as values; the others have weight 0 and are never
    probable. So a constant feature is always in its one mode.

    Example:
        >>> encoding = ModeEncoding.fit(torch.tensor([[0.0], [0.1], [9.0], [9.1]]), modes=2)
        >>> encoding.encode(torch.tensor([[0.05], [9.05]])).sort().values.round().tolist()
        [[0.0, 1.0], [0.0, 1.0]]
    """

    centre: Tensor  # (F,) the features are standardised before the mixtures see them
    scale: Tensor  # (F,)
    weights: Tensor  # (F, G)
    means: Tensor  # (F, G)
    variances: Tensor  # (F, G)

    @classmethod
    def fit(cls, x: Tensor, *, modes: int, seed: int = 0) -> ModeEncoding:
        """Return the mixtures of the columns of x (N, F), in double precision."""
        whole_number("modes", modes)
        if not bool(x.isfinite().all()):
            raise DataError("x holds values that are not finite; drop those rows or fill them in first")
        values = x.double().cpu()
        centre, scale = values.mean(0), values.std(0, correction=0)
        scale = torch.where(scale > 1e-12 * (1.0 + centre.abs()), scale, 1.0)  # constant but for rounding
        standard = ((values - centre) / scale).numpy()
        fitted = [_mixture(standard[:, [f]], modes, seed) for f in range(x.shape[1])]
        weights, means, variances = (torch.from_numpy(np.stack(column)) for column in zip(*fitted, strict=True))
        return cls(centre, scale, weights, means, variances)

    @property
    def features(self) -> int:
        """F, the number of original features."""
        return len(self.weights)

    @property
    def modes(self) -> int:
        """G, the number of modes that every feature has."""
        return self.weights.shape[1]

    def encode(self, x: Tensor) -> Tensor:
        """Return the probability of every mode (N, F * G), feature after feature."""
        standard = (x.to(self.centre) - self.centre) / self.scale
        squares = (standard[:, :, None] - self.means).square() / self.variances  # (N, F, G)
        logits = self.weights.log() - 0.5 * (self.variances.log() + squares)
        return logits.softmax(2).flatten(1).to(x)


def _mixture(values: np.ndarray, modes: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights, means and variances (G,) of one feature's values (N, 1)."""
    from sklearn.mixture import GaussianMixture

    used = min(modes, len(np.unique(values.round(9))))
    # values that pile up on a few points leave k-means little to choose: more starts find all of them
    mixture = GaussianMixture(used, random_state=seed, max_iter=500, n_init=3).fit(values)
    weights, means, variances = np.zeros(modes), np.zeros(modes), np.ones(modes)
    weights[:used], means[:used] = mixture.weights_, mixture.means_[:, 0]
    variances[:used] = mixture.covariances_[:, 0, 0]
    return weights, means, variances


@dataclass(frozen=True)
class SourceModel:
    """A fitted generator of one table's encoded rows, given their label.

    Example:
        >>> noise = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
        >>> source = Dataset.from_arrays(noise, None, (noise[:, 0] > 0).long(), names=["a", "b", "c"])
        >>> model = SourceModel.fit(source, SourceSettings(modes=2, width=32, depth=1))
        >>> x, labels = model.sample(100, seed=1)
        >>> x.shape, model.columns[:2]
        (torch.Size([100, 6]), ('a mode 1', 'a mode 2'))
    """

    settings: SourceSettings
    names: tuple[str, ...]  # of the original features
    levels: tuple[float, ...]  # the label's values; a class is its position among them
    shares: Tensor  # (2,) of the classes
    encoding: ModeEncoding
    vae: ConditionalVAE
    spread: float  # of generated rows, as a share of the real ones'

    @classmethod
    def fit(
        cls, source: Dataset, settings: SourceSettings, *, seed: int = 0, training: Training | None = None
    ) -> SourceModel:
        """Return a generator fitted on a table of continuous columns with a label; raise where it collapsed."""
        levels, labels = _classes(source)
        encoding = ModeEncoding.fit(source.x, modes=settings.modes, seed=seed)
        real = encoding.encode(source.x).float().cpu()
        vae = _network(encoding, settings, seed)
        train_vae(vae, real, labels, replace(training or Training(), kl_weight=settings.kl_weight), seed=seed)
        shares = torch.bincount(labels).double() / len(labels)
        names = tuple(f.name for f in source.features)
        fitted = cls(settings, names, levels, shares, encoding, vae, math.nan)
        generated, drawn = fitted.sample(5000, seed=seed)
        spread = relative_spread(generated, drawn, real, labels)
        if not spread >= _COLLAPSED:
            raise DataError(
                f"The generator collapsed: within a class its rows vary {100 * spread:.0f} % as much as the real ones, "
                f"at least {100 * _COLLAPSED:.0f} % is needed. The decoder ignores its latent, so a class's people "
                f"are all the same; lower kl_weight ({settings.kl_weight:g}) or depth ({settings.depth})"
            )
        return replace(fitted, spread=spread)

    @property
    def block(self) -> Block:
        """How many columns it generates, and what they sum to."""
        return Block(self.encoding.features * self.encoding.modes, self.encoding.features)

    @property
    def columns(self) -> tuple[str, ...]:
        """The name of every generated column: "age mode 1"."""
        return tuple(f"{name} mode {g + 1}" for name in self.names for g in range(self.encoding.modes))

    def sample(self, n: int, *, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Return n encoded rows (N, F * G) and their class numbers (N,), classes as frequent as in the table."""
        generator = torch.Generator().manual_seed(seed)
        z = torch.randn(n, self.settings.latent, generator=generator)
        labels = torch.multinomial(self.shares, n, replacement=True, generator=generator)
        with torch.no_grad():
            return self.vae.decode(z, self.vae.code(labels)), labels

    def state(self) -> dict[str, Any]:
        """Return all that was fitted, as tensors and plain values by name."""
        own = {name: getattr(self, name) for name in ("names", "levels", "shares", "spread")}
        return own | {
            "settings": asdict(self.settings),
            "encoding": dict(vars(self.encoding)),
            "vae": self.vae.state_dict(),
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> SourceModel:
        """Return the generator that `state` came from."""
        settings, encoding = SourceSettings(**state["settings"]), ModeEncoding(**state["encoding"])
        vae = _network(encoding, settings, seed=0)
        vae.load_state_dict(state["vae"])
        vae.requires_grad_(False)
        return cls(**{**state, "settings": settings, "encoding": encoding, "vae": vae})


def generator_score(model: SourceModel, *, pairs: int = 10_000, seed: int = 0) -> float:
    """Return how well the label can be predicted from generated rows, the paper's "model score": 0.5 is chance.

    A random forest learns the label from generated pairs (x, label); its balanced accuracy is measured on 5 000 other
    generated pairs. Real rows are not used: this measures how hard the generated task is. The paper does not name its
    classifier or its number of pairs.
    """
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import balanced_accuracy_score

    x, labels = (t.numpy() for t in model.sample(pairs, seed=2 * seed + 1))
    new_x, new_labels = (t.numpy() for t in model.sample(5000, seed=2 * seed + 2))
    forest = RandomForestClassifier(100, random_state=seed).fit(x, labels)
    return float(balanced_accuracy_score(new_labels, forest.predict(new_x)))


def _network(encoding: ModeEncoding, settings: SourceSettings, seed: int) -> ConditionalVAE:
    sizes = {name: getattr(settings, name) for name in ("width", "depth", "latent")}
    return ConditionalVAE(features=encoding.features, modes=encoding.modes, **sizes, seed=seed)


def _classes(source: Dataset) -> tuple[tuple[float, ...], Tensor]:
    """Return the label's values and each row's class number (N,), having refused what cannot be a source."""
    if not isinstance(source, Dataset):
        raise DataError(
            f"A {type(source).__name__} is not a source yet; give source_of(table, label=...) of "
            "fairfox.benchmark.source, which reads files and tables"
        )
    odd = [f.name for f in source.features if f.kind != "continuous" or f.has_missing]
    if odd:
        raise DataError(f"'{odd[0]}' is a category or has missing values; keep complete continuous columns only")
    if source.y is None:
        raise DataError("The table has no label; give y, one class per row")
    if not bool(source.y.isfinite().all()):
        raise DataError("The label of some rows is missing; drop those rows")
    levels, labels, counts = source.y.cpu().unique(return_inverse=True, return_counts=True)
    if len(levels) != 2 or int(counts.min()) < _FEWEST:
        raise DataError(
            f"The label has {len(levels)} value(s), the rarest in {int(counts.min())} row(s); "
            f"expected two classes of at least {_FEWEST} rows each: merge classes"
        )
    return tuple(float(v) for v in levels), labels

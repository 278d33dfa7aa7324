"""Generated people with a controlled bias: two fused tables, with the first one's label as the protected variable."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from fairfox.benchmark import fusion as fusions
from fairfox.benchmark.fusion import Fusion, fuse, joint_distribution
from fairfox.benchmark.source import SourceModel, SourceSettings, whole_number
from fairfox.data.dataset import Dataset, Feature, Protected, Truth
from fairfox.data.files import written_whole
from fairfox.errors import FileError, NotFittedError, OptionError, installed_versions

_FORMAT = 3  # of saved files


@dataclass(kw_only=True)
class SyntheticBias:
    """Generated people whose features come from two tables, and whose two labels depend on each other as requested.

    The first table's label is the protected variable c, the second one's is y; c affects only its own block of
    features, so each person's counterfactual is known: the same latents, another c.

    Example:
        >>> noise = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
        >>> source = Dataset.from_arrays(noise, None, (noise[:, 0] > 0).long())
        >>> small = SourceSettings(width=32, depth=1)
        >>> generator = SyntheticBias(modes=(2, 3), settings=(small, small)).fit(source, source)
        >>> people = generator.sample(100, bias=0.5, fusion="outer", seed=1)
        >>> people.x.shape, people.truth.counterfactual.shape
        (torch.Size([100, 24]), torch.Size([100, 24]))
    """

    modes: tuple[int, int] | None = None  # of c's table and of y's; None: as the settings say
    settings: tuple[SourceSettings, SourceSettings] = (SourceSettings(), SourceSettings())
    seed: int = 0
    _sources: tuple[SourceModel, SourceModel] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        c, y = _pair("settings", self.settings, SourceSettings, "(SourceSettings(), SourceSettings())")
        if self.modes is not None:
            modes = _pair("modes", self.modes, Integral, "(4, 3)")
            c, y = replace(c, modes=modes[0]), replace(y, modes=modes[1])
        whole_number("seed", self.seed, least=0)
        self.settings, self.modes = (c, y), (c.modes, y.modes)

    @classmethod
    def of(cls, c: SourceModel, y: SourceModel) -> Self:
        """Return the generator of two fitted source models."""
        return cls(settings=(c.settings, y.settings), _sources=(c, y))

    def fit(self, source_c: Dataset, source_y: Dataset) -> Self:
        """Model both tables: continuous columns and a label each; a collapsed model is refused.

        `fairfox.benchmark.source.source_of` makes a source of any table.
        """
        c, y = self.settings
        self._sources = (SourceModel.fit(source_c, c, seed=self.seed), SourceModel.fit(source_y, y, seed=self.seed))
        return self

    @property
    def sources(self) -> tuple[SourceModel, SourceModel]:
        """The models of c's table and of y's."""
        if self._sources is None:
            raise NotFittedError("This SyntheticBias is not fitted; call fit(source_c, source_y) first")
        return self._sources

    def keep_c(self, fusion: Fusion) -> Tensor:
        """Return the matrix (D, D_c) with which x @ matrix is the block that depends on c."""
        c, y = self.sources
        return fusions.keep_c(c.block, y.block, fusion)

    def keep_y(self, fusion: Fusion) -> Tensor:
        """Return the matrix (D, D_y) with which x @ matrix is the block that does not depend on c."""
        c, y = self.sources
        return fusions.keep_y(c.block, y.block, fusion)

    def joint(self, bias: float) -> Tensor:
        """Return the joint distribution (K_c, K_y) of c and y, each as frequent as in its table."""
        c, y = self.sources
        return joint_distribution(c.shares, y.shares, bias)

    def sample(
        self, n: int, *, bias: float, fusion: Fusion = "concat", seed: int = 0, derivative: bool = False
    ) -> Dataset:
        """Return n people with c (N, 1), y, and their truth; y is also a column that can be given.

        The same seed draws the same latents for any bias and fusion.

        Args:
            n: how many people.
            bias: from 0, c and y independent, to 1, as dependent as their frequencies allow.
            fusion: "concat" puts the two blocks side by side, "outer" multiplies them out.
            seed: same seed, same people.
            derivative: whether to compute the true dx/dc too, (N, D, 1).
        """
        n, seed = whole_number("n", n), whole_number("seed", seed, least=0)
        source_c, source_y = self.sources
        z_c, z_y, c, y = _draw(n, self.joint(bias), (source_c.settings.latent, source_y.settings.latent), seed)
        vae = source_c.vae
        with torch.no_grad():
            x_y = source_y.vae.decode(z_y, source_y.vae.code(y))
            x, other = (fuse(vae.decode(z_c, vae.code(label)), x_y, fusion) for label in (c, 1 - c))
            dx_dc = self._derivative(z_c, c, x_y, fusion) if derivative else None
        of_c, of_y = ([f"{of}: {name}" for name in each.columns] for of, each in (("c", source_c), ("y", source_y)))
        names = fusions.fused_names(of_c, of_y, fusion)
        levels, labels = (tuple(f"{level:g}" for level in source.levels) for source in (source_c, source_y))
        return Dataset(
            x=x,
            c=c[:, None].to(x),
            protected=(Protected("c", "binary", levels),),
            features=tuple(Feature(name, "continuous", j, j + 1) for j, name in enumerate(names)),
            y=y.to(x),
            truth=Truth(other, dx_dc),
            w=one_hot(y, 2).to(x),
            covariates=(Feature("y", "categorical", 0, 2, labels),),
        )

    def _derivative(self, z: Tensor, c: Tensor, x_y: Tensor, fusion: Fusion) -> Tensor:
        """Return the true dx/dc (N, D, 1) along the relaxed c, from class 0 to class 1."""
        vae = self.sources[0].vae
        own = vae.code(c)

        def features(code: Tensor) -> Tensor:
            return fuse(vae.decode(z, code), x_y, fusion)

        with warnings.catch_warnings():  # torch compiles its rules of differentiation with what it calls deprecated
            warnings.filterwarnings("ignore", category=DeprecationWarning, module="torch")
            # forward mode: one pass for all D features
            slope: Tensor = torch.func.jvp(features, (own,), (torch.ones_like(own),))[1]
        return slope[:, :, None]

    def save(self, path: str | Path) -> None:
        """Write the fitted generator into a file of tensors and plain values; `load` reads it and runs no code."""
        c, y = (source.state() for source in self.sources)
        state = {"format": _FORMAT, "versions": installed_versions("fairfox", "torch", "scikit-learn")}
        with written_whole(Path(path)) as temporary:
            torch.save({**state, "seed": self.seed, "c": c, "y": y}, temporary)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Return the generator that was saved in a file."""
        if not Path(path).is_file():
            raise FileError(f"There is no file '{path}'; give one that SyntheticBias.save wrote")
        try:
            state = torch.load(path, weights_only=True)
            found = state["format"]
            if found == _FORMAT:
                restored = cls.of(SourceModel.restored(state["c"]), SourceModel.restored(state["y"]))
                restored.seed = state["seed"]
                return restored
        except Exception as error:  # whatever a damaged file makes of it
            raise FileError(f"'{path}' holds no generator ({type(error).__name__}); save it again") from error
        raise FileError(f"'{path}' has format {found}; this version of fairfox reads {_FORMAT}")


def _draw(n: int, joint: Tensor, latents: tuple[int, int], seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return what people are made of: a latent for each block, and their two labels as class numbers."""
    generator = torch.Generator().manual_seed(seed)
    z_c, z_y = (torch.randn(n, size, generator=generator) for size in latents)
    ends = joint.flatten().cumsum(0)
    position = torch.rand(n, generator=generator, dtype=torch.float64) * ends[-1]
    cell = torch.searchsorted(ends, position, right=True).clamp(max=joint.numel() - 1)
    return z_c, z_y, cell // joint.shape[1], cell % joint.shape[1]


def _pair(name: str, given: object, kind: type, example: str) -> tuple[Any, Any]:
    """Return what was given for c's table and for y's, or say that two were expected."""
    if not isinstance(given, tuple | list) or len(given) != 2 or not all(isinstance(item, kind) for item in given):
        raise OptionError(f"{name} is {given!r}; expected two, for c's table and for y's: {name}={example}")
    return given[0], given[1]

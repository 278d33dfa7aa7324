"""Five tables of the Penn Machine Learning Benchmarks: continuous columns in their own units, and a label.

None has a protected variable. To make biased data, one table gives what depends on the label, another what depends on
the protected variable (see `fairfox.synthetic`). The columns are those PMLB listed as continuous in September 2020,
when the fAux paper used them; it has retyped some since.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fairfox.data.cache import Remote, fetch, find
from fairfox.data.dataset import Dataset
from fairfox.data.table import check_column, load_table

LABEL = "target"
_ADDRESS = "https://github.com/EpistasisLab/pmlb/raw/master/datasets/{0}/{0}.tsv.gz"
_MEASURED = (
    *("Radius", "Texture", "Perimeter", "Area", "Smoothness"),
    *("Compactness", "Concavity", "Concave_points", "Symmetry", "Fractal_dimension"),
)


@dataclass(frozen=True)
class Source:
    """One table: where its file comes from, and its continuous columns."""

    remote: Remote
    columns: tuple[str, ...]


def _source(name: str, folder: str, sha256: str, *columns: str) -> Source:
    return Source(Remote(f"pmlb_{name}.tsv.gz", _ADDRESS.format(folder), sha256), columns)


BACKACHE = _source(
    *("backache", "backache", "21d506c397dfeb3edbbbc253b923f59be6edb516689677ebef535296c6c62242"),
    *("id", "col_4", "col_5", "col_6", "col_7", "col_8"),
)
CREDIT = _source(
    *("credit_g", "_deprecated_credit_g", "039c48aaf10d8ca444c2799123ff37f99c5a98402884e2df66d92cdaac09f53b"),
    *("duration", "credit_amount", "installment_commitment", "residence_since", "age", "existing_credits"),
    "num_dependents",
)
AUSTRALIAN = _source(
    *("australian", "_deprecated_australian", "7f3e5e96b80f5217830cdd198d33b4262cbded4f7cc22981daaa5d61fdcb8329"),
    *("A2", "A3", "A7", "A10", "A13", "A14"),
)
WDBC = _source(
    *("wdbc", "_deprecated_wdbc", "a39fc5f054db506e83a4a4ec47eba1f7f9bf9bfdc983174e699312f32f42f1f5"),
    *(f"{name}{which}" for which in (1, 2, 3) for name in _MEASURED),  # mean, standard error, worst
)
MAGIC = _source(
    *("magic", "magic", "c823ea26d676538f9194d41f290798ff2f3fe59255c340418fd9439d8fc9c07f"),
    *("FLength", "FWidth", "FSize", "FConc", "FConc1", "FAsym", "FM3Long", "FM3Trans", "FAlpha", "FDist"),
)


def load_backache() -> Dataset:
    """Return 180 women of a study of backache in pregnancy, six columns; y is 1 for 25 of them.

    One column, `id`, only numbers the rows: PMLB lists it as continuous, and the paper counts it.
    """
    return _load(BACKACHE)


def load_credit() -> Dataset:
    """Return 1000 applicants for credit in Germany, seven columns; y is 1 for good (700) and 0 for bad (300)."""
    return _load(CREDIT)


def load_australian() -> Dataset:
    """Return 690 applicants for credit cards in Australia, six nameless columns; y is 1 for 307 of them."""
    return _load(AUSTRALIAN)


def load_wdbc() -> Dataset:
    """Return 569 breast tumours (Wisconsin), 30 columns about their cells; y is 1 for malignant (212).

    Where the file is not on this machine, scikit-learn has the same table: there is nothing to download.
    """
    return _load(WDBC) if find(WDBC.remote) else _wdbc_of_sklearn()


def load_magic() -> Dataset:
    """Return 19 020 showers seen by a gamma telescope (simulated), ten columns; y is 1 for a hadron (6688)."""
    return _load(MAGIC)


def _load(source: Source) -> Dataset:
    table = load_table(fetch(source.remote))
    for name in (*source.columns, LABEL):
        check_column(table, name)
    x = table.select(source.columns).to_numpy()
    return _dataset(source, x, table[LABEL].to_numpy())


def _wdbc_of_sklearn() -> Dataset:
    from sklearn.datasets import load_breast_cancer

    x, benign = load_breast_cancer(return_X_y=True)
    return _dataset(WDBC, np.round(x, 3), 1 - benign)  # PMLB's digits, and its label: malignant


def _dataset(source: Source, x: NDArray[np.float64], y: NDArray[np.generic]) -> Dataset:
    return Dataset.from_arrays(x.astype(np.float64), None, y.astype(np.float64), names=source.columns)

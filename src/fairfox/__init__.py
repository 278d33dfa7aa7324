"""fairfox: which people does a model treat differently because of a protected variable, and how sure is that?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfox.choices.tests import FAIR_TESTS as FAIR_TESTS
    from fairfox.comparison import compare as compare
    from fairfox.comparison import plan as plan
    from fairfox.data.dataset import Dataset as Dataset
    from fairfox.data.datasets import load_adult as load_adult
    from fairfox.data.datasets import load_bank as load_bank
    from fairfox.data.datasets import load_chicago_ssl as load_chicago_ssl
    from fairfox.data.datasets import load_compas as load_compas
    from fairfox.data.datasets import load_german as load_german
    from fairfox.data.datasets import load_law_school as load_law_school
    from fairfox.errors import FairfoxError as FairfoxError
    from fairfox.fairtests.registry import make_test as make_test
    from fairfox.fairtests.storage import load_test as load_test
    from fairfox.fairtests.storage import save_test as save_test
    from fairfox.models.adapters import as_model as as_model
    from fairfox.models.http import Endpoint as Endpoint
    from fairfox.models.loading import load_model as load_model
    from fairfox.options import EstimationOptions as EstimationOptions
    from fairfox.options import ModelOptions as ModelOptions
    from fairfox.options import ReportOptions as ReportOptions
    from fairfox.options import TableOptions as TableOptions
    from fairfox.pipeline import audit as audit
    from fairfox.pipeline import fit as fit
    from fairfox.pipeline import score as score
    from fairfox.remedies.alternatives import alternatives as alternatives
    from fairfox.remedies.hiding import train_fair as train_fair
    from fairfox.remedies.repair import repair as repair
    from fairfox.result import AuditResult as AuditResult

_PUBLIC = {  # imported on first use, so that `fairfox --help` needs neither torch nor scikit-learn
    "fairfox.choices.tests": ("FAIR_TESTS",),
    "fairfox.comparison": ("compare", "plan"),
    "fairfox.data.dataset": ("Dataset",),
    "fairfox.data.datasets": (
        "load_adult",
        "load_bank",
        "load_chicago_ssl",
        "load_compas",
        "load_german",
        "load_law_school",
    ),
    "fairfox.errors": ("FairfoxError",),
    "fairfox.fairtests.registry": ("make_test",),
    "fairfox.fairtests.storage": ("load_test", "save_test"),
    "fairfox.models.adapters": ("as_model",),
    "fairfox.models.http": ("Endpoint",),
    "fairfox.models.loading": ("load_model",),
    "fairfox.options": ("EstimationOptions", "ModelOptions", "ReportOptions", "TableOptions"),
    "fairfox.pipeline": ("audit", "fit", "score"),
    "fairfox.remedies.alternatives": ("alternatives",),
    "fairfox.remedies.hiding": ("train_fair",),
    "fairfox.remedies.repair": ("repair",),
    "fairfox.result": ("AuditResult",),
}
_MODULES = {name: module for module, names in _PUBLIC.items() for name in names}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fairfox' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)

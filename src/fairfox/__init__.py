"""fairfox: which people does a model treat differently because of a protected variable, and how sure is that?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfox.auditing import audit as audit
    from fairfox.data.dataset import Dataset as Dataset
    from fairfox.errors import FairfoxError as FairfoxError
    from fairfox.fairtests.registry import FAIR_TESTS as FAIR_TESTS
    from fairfox.fairtests.registry import make_test as make_test
    from fairfox.models.http_model import Endpoint as Endpoint
    from fairfox.models.loading import load_model as load_model
    from fairfox.models.wrap import as_model as as_model
    from fairfox.result import AuditResult as AuditResult

_PUBLIC = {  # imported on first use, so that `fairfox --help` needs neither torch nor scikit-learn
    "audit": "fairfox.auditing",
    "AuditResult": "fairfox.result",
    "Dataset": "fairfox.data.dataset",
    "Endpoint": "fairfox.models.http_model",
    "FAIR_TESTS": "fairfox.fairtests.registry",
    "FairfoxError": "fairfox.errors",
    "as_model": "fairfox.models.wrap",
    "load_model": "fairfox.models.loading",
    "make_test": "fairfox.fairtests.registry",
}
__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fairfox' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)

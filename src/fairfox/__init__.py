"""fairfox: which people does a model treat differently because of a protected variable, and how sure is that?"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fairfox.auditing import audit as audit
    from fairfox.comparing import compare as compare
    from fairfox.data.adult import load_adult as load_adult
    from fairfox.data.bank import load_bank as load_bank
    from fairfox.data.chicago import load_chicago_ssl as load_chicago_ssl
    from fairfox.data.compas import load_compas as load_compas
    from fairfox.data.dataset import Dataset as Dataset
    from fairfox.data.german import load_german as load_german
    from fairfox.data.law import load_law_school as load_law_school
    from fairfox.earlier import drift as drift
    from fairfox.errors import FairfoxError as FairfoxError
    from fairfox.fairtests.registry import FAIR_TESTS as FAIR_TESTS
    from fairfox.fairtests.registry import make_test as make_test
    from fairfox.models.http_model import Endpoint as Endpoint
    from fairfox.models.loading import load_model as load_model
    from fairfox.models.wrap import as_model as as_model
    from fairfox.planning import plan as plan
    from fairfox.remedy import train_fair as train_fair
    from fairfox.result import AuditResult as AuditResult

_PUBLIC = {  # imported on first use, so that `fairfox --help` needs neither torch nor scikit-learn
    "audit": "fairfox.auditing",
    "AuditResult": "fairfox.result",
    "Dataset": "fairfox.data.dataset",
    "Endpoint": "fairfox.models.http_model",
    "FAIR_TESTS": "fairfox.fairtests.registry",
    "FairfoxError": "fairfox.errors",
    "as_model": "fairfox.models.wrap",
    "compare": "fairfox.comparing",
    "drift": "fairfox.earlier",
    "load_adult": "fairfox.data.adult",
    "load_bank": "fairfox.data.bank",
    "load_chicago_ssl": "fairfox.data.chicago",
    "load_compas": "fairfox.data.compas",
    "load_german": "fairfox.data.german",
    "load_law_school": "fairfox.data.law",
    "load_model": "fairfox.models.loading",
    "make_test": "fairfox.fairtests.registry",
    "plan": "fairfox.planning",
    "train_fair": "fairfox.remedy",
}
__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'fairfox' has no attribute '{name}'")
    return getattr(import_module(_PUBLIC[name]), name)

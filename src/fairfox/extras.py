"""Optional packages: imported when needed, with a helpful error when missing."""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from fairfox.errors import MissingExtraError


def require(package: str, *, extra: str | None = None, why: str = "") -> ModuleType:
    """Return the imported package, or raise with the command that installs it."""
    try:
        return import_module(package)
    except ImportError as error:
        reason = f" {why}" if why else ""
        raise MissingExtraError(
            f"The package '{package}' is needed{reason} and not installed; "
            f"run: pip install 'fairfox[{extra or package}]'"
        ) from error


def installed_versions(*packages: str) -> dict[str, str]:
    """Return the versions of packages by name; "not installed" for those that are not, as when run from a checkout."""
    out = {}
    for package in packages:
        try:
            out[package] = version(package)
        except PackageNotFoundError:
            out[package] = "not installed"
    return out

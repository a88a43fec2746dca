"""Versions of SAGE, Python and libraries."""

from __future__ import annotations

import platform
from importlib import metadata

NAMED = (
    "langgraph",
    "langchain-openai",
    "lifelines",
    "statsmodels",
    "numpy",
    "pandas",
    "torch",
    "sentence-transformers",
)


def own_version() -> str:
    """Return SAGE's own version, or "not installed" in a plain checkout."""
    try:
        return metadata.version("sage-pathology")
    except metadata.PackageNotFoundError:
        return "0.1.0 (not installed)"


def versions() -> dict[str, str]:
    """Return the versions of SAGE, Python and the libraries that a report lists."""
    found = {"sage": own_version(), "python": platform.python_version()}
    for name in NAMED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found

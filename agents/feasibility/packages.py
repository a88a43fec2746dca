"""Maturity of analysis packages, estimated from their metadata."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import metadata

_STATUS = {
    "1 - Planning": 0.1,
    "2 - Pre-Alpha": 0.2,
    "3 - Alpha": 0.5,
    "4 - Beta": 0.8,
    "5 - Production/Stable": 1.0,
    "6 - Mature": 1.0,
    "7 - Inactive": 0.2,
}


@dataclass(frozen=True)
class Package:
    """A package's version and declared maturity, in [0, 1]."""

    name: str
    version: str
    status: str | None
    maturity: float
    repository: str | None = None

    def sentence(self) -> str:
        """Describe the package in a sentence."""
        status = f", declared {self.status.split(' - ')[-1].lower()}" if self.status else ""
        return f"{self.name} {self.version} is installed{status}."


def find_package(name: str) -> Package | None:
    """Find the installed package `name`, or None.

    Maturity follows the declared development status, or else the version: 1 from version 1.0 on,
    0.8 below.
    """
    try:
        facts = metadata.metadata(name)
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
    prefix = "Development Status :: "
    status = next(
        (
            line.removeprefix(prefix)
            for line in facts.get_all("Classifier") or ()
            if line.startswith(prefix)
        ),
        None,
    )
    major = re.match(r"\d+", version)
    by_version = 1.0 if major and int(major[0]) >= 1 else 0.8
    return Package(
        name=name,
        version=version,
        status=status,
        maturity=_STATUS.get(status, by_version) if status else by_version,
        repository=_repository(
            [*(facts.get_all("Project-URL") or ()), *(facts.get_all("Home-page") or ())]
        ),
    )


def _repository(urls: list[str]) -> str | None:
    """Return the first project URL on a code host."""
    return next((url.rpartition(",")[2].strip() for url in urls if "github.com/" in url), None)

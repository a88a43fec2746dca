"""Maturity of analysis packages: what is installed here, and what their index knows of them."""

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
    """A package's version and how mature it says it is, in [0, 1]."""

    name: str
    version: str
    status: str | None
    maturity: float
    license: str | None = None

    def sentence(self) -> str:
        """For the reader."""
        status = f", declared {self.status.split(' - ')[-1].lower()}" if self.status else ""
        return f"{self.name} {self.version} is installed{status}."


def installed(name: str) -> Package | None:
    """The installed package `name`, or None.

    Maturity is the declared development status where there is one, else read from the version: 1
    from 1.0 on, 0.8 below.
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
        license=next(iter(facts.get_all("License-Expression") or ()), None),
    )

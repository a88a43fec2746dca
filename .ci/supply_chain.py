"""What `make setup` installs to run: each package's license and pin, and a bill of materials.

Fails on a license that is not on the list, GPL and AGPL among them, and on a package that is not
pinned with hashes. Other extras than "all" and development tools are not
looked at: nobody gets them unasked.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]

ALLOWED = {
    *("0BSD", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "BSD-1-Clause", "BSD-2-Clause"),
    *(
        "BSD-3-Clause",
        "BSD-4.3TAHOE",
        "BSL-1.0",
        "blessing",
        "CC0-1.0",
        "CNRI-Python",
        "IJG",
        "ISC",
    ),
    *("libpng-2.0", "libtiff", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Python-2.0", "Zlib"),
    *("LicenseRef-Biopython-License-Agreement", "LicenseRef-Public-Domain", "LicenseRef-BSD"),
    # Weak copyleft: the file or shared library stays under its license, and is not changed here.
    *("LGPL-2.1-only", "LGPL-2.1-or-later", "MPL-1.1", "MPL-2.0"),
}
"""Licenses of code that a work under Apache-2.0 may depend on."""

CLASSIFIERS = {
    "Apache Software License": "Apache-2.0",
    "BSD License": "LicenseRef-BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
WORDS = {
    "apache 2.0": "Apache-2.0",
    "apache 2.0 license": "Apache-2.0",
    "apache license, version 2.0": "Apache-2.0",
    "apache-2.0": "Apache-2.0",
    "bsd": "LicenseRef-BSD",
    "bsd-2-clause": "BSD-2-Clause",
    "bsd-3-clause": "BSD-3-Clause",
    "mit": "MIT",
    "mit license, apache license, version 2.0": "MIT AND Apache-2.0",
    "mpl-2.0 and mit": "MPL-2.0 AND MIT",
}
READ = {
    "autograd-gamma": "MIT",
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
    "tiktoken": "MIT",
}
"""Packages whose metadata name no license, with the one that their license file holds."""

GPU_PARTS = re.compile(r"(nvidia|cuda)-")
"""What a GPU build of torch brings: under NVIDIA's own terms, chosen by who installs that build."""


class Refused(Exception):  # noqa: N818 - an answer, not a fault
    """Something may not ship; the message says what and why."""


def runtime_packages(pyproject: Path = ROOT / "pyproject.toml") -> dict[str, Distribution]:
    """Return the packages of the core and of the extra "all" with their dependencies, by name."""
    project = tomllib.loads(pyproject.read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    together = [name for line in optional["all"] for name in Requirement(line).extras]
    parts = [project["dependencies"], *(optional[name] for name in together)]
    waiting = [Requirement(line) for part in parts for line in part]
    extras: dict[str, set[str]] = {}
    found: dict[str, Distribution] = {}
    while waiting:
        wanted = waiting.pop()
        name = canonicalize_name(wanted.name)
        if GPU_PARTS.match(name) or (name in found and wanted.extras <= extras[name]):
            continue
        extras.setdefault(name, set()).update(wanted.extras)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            raise Refused(f"{name} is not installed; run make setup") from None
        for line in found[name].requires or ():
            inner = Requirement(line)
            chosen = ({"extra": extra} for extra in ("", *extras[name]))
            if inner.marker is None or any(inner.marker.evaluate(given) for given in chosen):
                waiting.append(inner)
    return found


def license_of(package: Distribution) -> str:
    """Return a package's license as an SPDX expression; "" when it states none that is known."""
    facts = package.metadata
    name = canonicalize_name(facts["Name"])
    if expression := facts.get("License-Expression"):
        return str(expression)
    if name in READ:
        return READ[name]
    if known := WORDS.get((facts.get("License") or "").strip().lower()):
        return known
    lines = [line for line in facts.get_all("Classifier") or () if line.startswith("License ::")]
    named = [line.rpartition(" :: ")[2] for line in lines]
    known_ones = [CLASSIFIERS.get(word, word) for word in named if word != "OSI Approved"]
    return " AND ".join(known_ones)


def allowed(expression: str) -> bool:
    """Return True when an SPDX expression leaves a choice of licenses that are all on the list."""
    words = re.findall(r"\(|\)|[^\s()]+(?: WITH [^\s()]+)?", expression)
    position = 0

    def either() -> bool:
        nonlocal position
        holds = both()
        while position < len(words) and words[position] == "OR":
            position += 1
            holds = both() or holds
        return holds

    def both() -> bool:
        nonlocal position
        holds = single()
        while position < len(words) and words[position] == "AND":
            position += 1
            holds = single() and holds
        return holds

    def single() -> bool:
        nonlocal position
        word = words[position] if position < len(words) else ""
        position += 1
        if word != "(":
            return word in ALLOWED
        holds = either()
        position += 1
        return holds

    return either() and position == len(words)


def pins(path: Path) -> set[str]:
    """Return the names that a requirements file pins to one version."""
    found = re.findall(r"^([A-Za-z0-9._-]+)==", path.read_text("utf-8"), re.MULTILINE)
    return {canonicalize_name(name) for name in found}


def check(packages: dict[str, Distribution]) -> None:
    """Raise `Refused` with every package that may not be a mandatory dependency."""
    pinned, hashed = pins(ROOT / "constraints.txt"), pins(ROOT / "constraints.hashes.txt")
    wrong = []
    for name, package in sorted(packages.items()):
        if not allowed(license_of(package)):
            wrong.append(f"{name}: license {license_of(package) or 'unknown'} is not on the list")
        if name not in hashed and not (name == "torch" and name in pinned):
            wrong.append(f"{name}: no pin with hashes; run make hashes")
    if wrong:
        raise Refused("\n".join(wrong))


def bill_of_materials(packages: dict[str, Distribution]) -> dict[str, Any]:
    """Return the packages in the form of CycloneDX 1.6."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

    def component(name: str, package: Distribution) -> dict[str, Any]:
        return {
            "type": "library",
            "bom-ref": f"pkg:pypi/{name}@{package.version}",
            "name": name,
            "version": package.version,
            "purl": f"pkg:pypi/{name}@{package.version}",
            "licenses": [{"expression": license_of(package)}],
        }

    components = [component(name, package) for name, package in sorted(packages.items())]
    listed = json.dumps(components)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, listed)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": "sage",
                "name": project["name"],
                "version": project["version"],
                "licenses": [{"expression": project["license"]}],
            }
        },
        "components": components,
    }


def main() -> int:
    """Check, then write the bill of materials; returns the exit status."""
    target = ROOT / "build" / "sbom.cdx.json"
    try:
        packages = runtime_packages()
        check(packages)
    except Refused as refused:
        print(refused, file=sys.stderr)
        return 1
    target.parent.mkdir(exist_ok=True)
    target.write_text(json.dumps(bill_of_materials(packages), indent=1) + "\n", encoding="utf-8")
    print(f"{len(packages)} runtime packages, licenses and pins checked; {target.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Licenses, pins and the bill of materials: what `make check` refuses, and that it passes here."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import tomllib
from email.message import Message
from importlib.metadata import Distribution
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

ROOT = Path(__file__).parents[2]
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"


def load() -> Any:
    spec = importlib.util.spec_from_file_location("supply_chain", ROOT / ".ci/supply_chain.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SUPPLY = load()


def package(name: str, facts: dict[str, Any]) -> Distribution:
    """An installed package with these lines in its metadata."""
    metadata = Message()
    metadata["Name"] = name
    for key, values in facts.items():
        for value in [values] if isinstance(values, str) else values:
            metadata[key] = value
    return cast(Distribution, SimpleNamespace(metadata=metadata, version="1", requires=[]))


@pytest.mark.parametrize(
    ("expression", "passes"),
    [
        ("MIT", True), ("MIT AND BSD-3-Clause", True), ("GPL-3.0-only OR MIT", True),
        ("BSD-3-Clause AND (GPL-2.0-only OR BSD-3-Clause)", True),
        ("Apache-2.0 WITH LLVM-exception", True), ("LGPL-2.1-only", True), ("", False),
        ("GPL-3.0-or-later", False), ("AGPL-3.0-only", False), ("MIT AND GPL-3.0-only", False),
        ("MIT AND (GPL-2.0-only OR AGPL-3.0-only)", False), ("SSPL-1.0", False),
        ("GPL-2.0-only WITH Classpath-exception-2.0", False), ("MIT MIT", False),
        ("Proprietary", False), ("MIT)", False), ("LicenseRef-Custom", False), ("MIT AND", False),
    ],
)  # fmt: skip
def test_an_expression_passes_when_it_leaves_an_allowed_choice(
    expression: str, passes: bool
) -> None:
    assert SUPPLY.allowed(expression) is passes


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"License-Expression": "GPL-3.0-or-later"},
        {"License": "GPLv3"},
        {"Classifier": "License :: Other/Proprietary License"},
        {
            "Classifier": [
                "License :: OSI Approved :: MIT License",
                "License :: OSI Approved :: GNU Affero General Public License v3",
            ]
        },
    ],
)
def test_a_package_with_a_license_off_the_list_or_none_is_refused(facts: dict[str, Any]) -> None:
    with pytest.raises(SUPPLY.Refused, match="numpy"):
        SUPPLY.check({"numpy": package("numpy", facts)})


def test_a_package_without_hashes_is_refused() -> None:
    with pytest.raises(SUPPLY.Refused, match="new-one"):
        SUPPLY.check({"new-one": package("new-one", {"License-Expression": "MIT"})})


def test_what_is_installed_passes_and_is_listed() -> None:
    packages = SUPPLY.runtime_packages()
    SUPPLY.check(packages)
    assert {"numpy", "lifelines", "networkx", "statsmodels", "torch"} <= set(packages)
    assert not {"scikit-survival", "ecos", "pymupdf", "ray"} & set(packages)
    held = SUPPLY.bill_of_materials(packages)
    assert held["bomFormat"] == "CycloneDX" and len(held["components"]) == len(packages)
    assert all(part["purl"] and part["licenses"] for part in held["components"])


def test_the_pins_with_hashes_are_the_pins() -> None:
    plain = re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    versions = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in plain}
    lines = (ROOT / "constraints.hashes.txt").read_text().splitlines()
    entries = re.split(r"\n(?=\w)", "\n".join(line for line in lines if line[:1] != "#"))
    assert len(entries) > 200
    for entry in entries:
        found = re.match(r"([\w.-]+)==([^\s;]+)", entry)
        assert found is not None, entry[:80]
        assert versions.get(found[1], found[2]) == found[2]
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry[:80]


def test_license_and_notice_stand_beside_the_code_and_go_with_it() -> None:
    assert hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest() == APACHE_2
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0" and project["license-files"] == ["LICENSE", "NOTICE"]
    notice = (ROOT / "NOTICE").read_text()
    for folder in (ROOT / "data").iterdir():
        if folder.is_dir():
            assert f"data/{folder.name}\n" in notice


def test_no_pin_runs_on_into_the_next() -> None:
    """A backslash after the last hash makes pip read the next pin as part of this one, unsaid."""
    before = ""
    for line in (ROOT / "constraints.hashes.txt").read_text(encoding="utf-8").splitlines():
        if line[:1].isalpha():
            assert not before.endswith("\\"), f"{line}: the line before goes on"
        before = line

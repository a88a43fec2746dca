"""pyproject.toml against the code: each dependency is imported, each extra is told of."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from sage.core.extras import EXTRAS, install

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PRODUCT = ("sage", "agents", "kg", "validation", "mcp_servers", "sandbox", "plugins")

LOADED = {
    "openslide-bin": "openslide",  # the library that openslide-python loads
    "langgraph-checkpoint-sqlite": "langgraph.checkpoint.sqlite",
    "langgraph-checkpoint-postgres": "langgraph.checkpoint.postgres",
}
"""Packages whose modules are not found by their own top name."""
TOOLS = {"all", "dev", "docs"}
"""Extras of programs, or of other extras, that no product file imports."""


def named_modules() -> set[str]:
    """Every dotted module that product code imports or names as a string."""
    found: set[str] = set()
    for package in PRODUCT:
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            found.update(re.findall(r"^\s*(?:from|import) ([\w.]+)", text, re.MULTILINE))
            if path.name != "extras.py":
                found.update(re.findall(r"""["']([\w.]+)["']""", text))
    return found


def requirements(lines: list[str]) -> list[str]:
    return [canonicalize_name(Requirement(line).name) for line in lines]


def modules_of() -> dict[str, set[str]]:
    """The top modules of each installed package."""
    found: dict[str, set[str]] = {}
    for module, packages in packages_distributions().items():
        for package in packages:
            found.setdefault(canonicalize_name(package), set()).add(module)
    return found


def test_every_runtime_dependency_is_imported() -> None:
    named, owned = named_modules(), modules_of()
    optional = PROJECT["optional-dependencies"]
    parts = [PROJECT["dependencies"]]
    parts += [lines for name, lines in optional.items() if name not in TOOLS]
    unused = []
    for package in requirements([line for lines in parts for line in lines]):
        modules = {LOADED[package]} if package in LOADED else owned.get(package, {package})
        if not any(name == m or name.startswith(f"{m}.") for name in named for m in modules):
            unused.append(package)
    assert unused == []


def test_every_extra_is_told_of_with_the_modules_of_its_packages() -> None:
    optional = PROJECT["optional-dependencies"]
    assert set(EXTRAS) == set(optional) - TOOLS
    (together,) = optional["all"]
    assert Requirement(together).extras == {"literature", "models", "slides"}
    owned = modules_of()
    for name, extra in EXTRAS.items():
        packages = requirements(optional[name])
        for module in extra.modules:
            assert any(module in owned.get(p, {p}) for p in packages), (name, module)


@pytest.mark.parametrize(
    ("receipt", "command"),
    [("uv-receipt.toml", "uv tool install"), ("pipx_metadata.json", "pipx install"), ("", "pip")],
)
def test_an_extra_is_added_by_the_program_that_installed_sage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, receipt: str, command: str
) -> None:
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    if receipt:
        (tmp_path / receipt).touch()
    assert install("ray").startswith(command)
    assert "ray" in install("ray")

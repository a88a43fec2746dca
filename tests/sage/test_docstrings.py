"""Public functions of many arguments say what each is, with its unit or shape."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MANY = 4
METHOD = ["study", "plan", "book", "tables"]
"""Registered tests are called by one signature, which `validation/methods/__init__.py` explains."""


def public(node: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Functions of a module and methods of its classes, without private ones and nested ones."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("_"):
                continue
            if isinstance(child, ast.ClassDef):
                yield from public(child)
            else:
                yield child


def explains_itself(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    given = function.args
    names = [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    if len([name for name in names if name not in ("self", "cls")]) < MANY or names == METHOD:
        return True
    # An override is explained where it is declared.
    text = ast.get_docstring(function) or ""
    return "Parameters\n---" in text or text.startswith("See `")


def test_functions_of_many_arguments_explain_them() -> None:
    root = Path(__file__).resolve().parents[2]
    bare = []
    for package in ("sage", "agents", "mcp_servers", "kg", "validation", "sandbox"):
        for path in sorted((root / package).rglob("*.py")):
            if "cli" in path.parts:  # options of commands have their help
                continue
            tree = ast.parse(path.read_text(encoding="utf-8"))
            for function in public(tree):
                if not explains_itself(function):
                    bare.append(f"{path.relative_to(root)}:{function.lineno} {function.name}")
    assert not bare, "\n".join(bare)

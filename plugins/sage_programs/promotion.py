"""Promotion of a function from a reviewed analysis to a user tool with a test.

The function is copied from the program's text and never run here. The person who promotes
it must have read it, since tools run with that person's own rights.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.hashes import hash_text
from sandbox import policy

_NAME = re.compile(r"[a-z][a-z0-9_]{0,60}")
PROGRAMS = ("analysis.py", "attempt-*/analysis.py", "**/attempt-*/analysis.py", "**/analysis.py")

MODULE = '''"""Promoted from a reviewed analysis: {function}({parameters}).

From {origin}, program {digest}. Read before it was promoted; change it as you see fit.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.spec import tool
{imports}

{source}


class {stem}Input(BaseModel):
    """Arguments of `{function}`."""

{fields}


class {stem}Result(BaseModel):
    """Result of `{function}`."""

    value: Any = Field(description="The function's return value, as JSON")


@tool("{function}", "user", "1.0.0", {summary!r})
def {function}_tool(given: {stem}Input, context: ToolContext) -> {stem}Result:
    """Call `{function}` with the given arguments."""
    return {stem}Result(value={function}({call}))
'''

TEST = '''"""Test of the promoted tool `{function}`: registered, typed, and validating its input."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from mcp_servers.registry import load


def spec():
    return load("all", tool_folders=[Path(__file__).parents[1]]).get("{function}")


def test_it_is_in_the_registry():
    assert spec().version == "1.0.0"
    assert list(spec().input_schema["properties"]) == {parameters!r}


def test_it_refuses_arguments_of_the_wrong_type():
    wrong = dict.fromkeys({required!r}, object())
    with pytest.raises(ValidationError):
        spec().given.model_validate(wrong | {{"no_such_argument": 1}} if not wrong else wrong)
'''


def promote(run_dir: Path, function: str, into: Path) -> Path:
    """Write `function` from the analysis under `run_dir` to the folder `into` as a tool.

    Writes `FUNCTION.py` and `tests/test_FUNCTION.py`, and returns the first; nothing is run.

    Raises
    ------
    InputError
        If there is no such function, it cannot stand alone, its parameters are not plain
        typed values, or the tool already exists.
    """
    if not _NAME.fullmatch(function):
        raise InputError(
            f'"{function}" is not a valid function name; use lowercase letters, digits and _'
        )
    program = _program(run_dir, function)
    text = program.read_text(encoding="utf-8")
    tree = ast.parse(text)
    node = _function(tree, function)
    target, test = into / f"{function}.py", into / "tests" / f"test_{function}.py"
    for path in (target, test):
        if path.exists():
            raise InputError(
                f"{path} already exists; remove it, or choose another folder with --into"
            )
    module = _module(tree, node, text, program)
    _must_be_allowed(module, program)
    write_text(test, _test(node))
    write_text(target, module)
    return target


def _program(run_dir: Path, function: str) -> Path:
    """Find the newest program under `run_dir` that defines the function."""
    root = run_dir.resolve()
    if not root.is_dir():
        raise InputError(f"{run_dir} is not a folder")
    found: dict[Path, None] = {}
    for pattern in PROGRAMS:
        for path in sorted(root.glob(pattern), key=_number, reverse=True):
            if path.is_file() and path.resolve().is_relative_to(root):
                found[path] = None
    names: set[str] = set()
    for path in found:
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (SyntaxError, UnicodeDecodeError):
            continue
        here = {statement.name for statement in tree.body if isinstance(statement, ast.FunctionDef)}
        if function in here:
            return path
        names |= here
    known = ", ".join(sorted(names - {"main"})) or "none"
    raise InputError(f'no program in {run_dir} defines "{function}"; defined functions: {known}')


def _number(path: Path) -> tuple[str, int]:
    digits = path.parent.name.removeprefix("attempt-")
    return str(path.parent.parent), int(digits) if digits.isdigit() else 0


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    node = next(
        statement
        for statement in tree.body
        if isinstance(statement, ast.FunctionDef) and statement.name == name
    )
    arguments = node.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise InputError(f"{name}: a tool's parameters must be explicit, without * or **")
    for argument in (*arguments.args, *arguments.kwonlyargs):
        if argument.annotation is None or not _plain(argument.annotation):
            raise InputError(
                f'{name}: parameter "{argument.arg}" needs a plain type (int, float, str, bool, '
                "or a list, dict or tuple of these types), because tool arguments are "
                "JSON"
            )
    if node.decorator_list:
        raise InputError(f"{name}: a function with decorators cannot be promoted")
    return node


_PLAIN = {"int", "float", "str", "bool", "list", "dict", "tuple", "None"}


def _plain(annotation: ast.expr) -> bool:
    words = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return words <= _PLAIN and not any(
        isinstance(node, ast.Attribute | ast.Call) for node in ast.walk(annotation)
    )


def _module(tree: ast.Module, node: ast.FunctionDef, text: str, program: Path) -> str:

    imports, helpers = _needs(tree, node)
    parts = [ast.get_source_segment(text, helper) or "" for helper in (*helpers, node)]
    fields, call = [], []
    defaults: dict[str, ast.expr] = {}
    positional = node.args.args
    for argument, value in zip(
        positional[len(positional) - len(node.args.defaults) :], node.args.defaults, strict=True
    ):
        defaults[argument.arg] = value
    for argument, given in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True):
        if given is not None:
            defaults[argument.arg] = given
    for argument in (*positional, *node.args.kwonlyargs):
        kind = ast.unparse(argument.annotation) if argument.annotation else "str"
        default = f" = {ast.unparse(defaults[argument.arg])}" if argument.arg in defaults else ""
        fields.append(f"    {argument.arg}: {kind}{default}")
        call.append(f"{argument.arg}=given.{argument.arg}")
    summary = (ast.get_docstring(node) or f"Promoted function {node.name}.").split("\n")[0]
    return MODULE.format(
        function=node.name,
        parameters=", ".join(argument.arg for argument in (*positional, *node.args.kwonlyargs)),
        origin=f"{program.parent.parent.name}/{program.parent.name}",
        digest=hash_text(text, digits=12),
        imports="".join(f"{ast.unparse(module)}\n" for module in imports),
        source="\n\n\n".join(parts),
        stem="".join(word.capitalize() for word in node.name.split("_")),
        fields="\n".join(fields) or "    pass",
        summary=summary[:120],
        call=", ".join(call),
    )


def _needs(
    tree: ast.Module, node: ast.FunctionDef
) -> tuple[list[ast.Import | ast.ImportFrom], list[ast.stmt]]:
    """List the program's imports, functions, and constants that a function uses, in order."""
    defined: dict[str, ast.stmt] = {}
    for statement in tree.body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for alias in statement.names:
                defined[(alias.asname or alias.name).split(".")[0]] = statement
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            defined[statement.name] = statement
        elif isinstance(statement, ast.Assign):
            for name in (t.id for t in statement.targets if isinstance(t, ast.Name)):
                defined[name] = statement
    needed: list[ast.stmt] = []
    queue: list[ast.stmt] = [node]
    while queue:
        current = queue.pop()
        for word in {n.id for n in ast.walk(current) if isinstance(n, ast.Name)}:
            found = defined.get(word)
            if found is not None and found is not node and found not in needed:
                needed.append(found)
                queue.append(found)
    ordered = [statement for statement in tree.body if statement in needed]
    imports = [
        statement for statement in ordered if isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    helpers = [
        statement for statement in ordered if not isinstance(statement, ast.Import | ast.ImportFrom)
    ]
    return imports, helpers


def _must_be_allowed(module: str, program: Path) -> None:
    allowed = policy.ALLOWED_IMPORTS | {"mcp_servers"}
    if found := policy.check(module, allowed, sandboxed=False):
        raise InputError(f"{program}: not promoted, line {found[0].line}: {found[0].message}")


def _test(node: ast.FunctionDef) -> str:
    names = [argument.arg for argument in (*node.args.args, *node.args.kwonlyargs)]
    optional = len(node.args.defaults)
    required = [argument.arg for argument in node.args.args[: len(node.args.args) - optional]]
    required += [
        argument.arg
        for argument, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if default is None
    ]
    return TEST.format(function=node.name, parameters=names, required=required)

"""Parser for measurement formulas, single or in a file; nothing in a formula is executed."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from mcp_servers.measures.language import (
    DEEPEST,
    LEAVES,
    Arithmetic,
    Log2,
    Measurement,
    Quantity,
    Rule,
)
from mcp_servers.measures.nodes import Node
from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.hashes import hash_text

KINDS: dict[str, type[Node]] = {node.model_fields["kind"].default: node for node in LEAVES}
KINDS["log2"] = Log2
OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
LONGEST = 1000
MOST = 20_000
MAX_BYTES = 16 << 20
M = TypeVar("M", bound=BaseModel)


def parse(text: str) -> Measurement:
    """Parse a formula such as `mean(density(cells.lymphoid, within=regions.tumor))`.

    Raises `InputError` if a part is not recognized or its units do not match; the message
    names valid choices.
    """
    if len(text) > LONGEST:
        raise InputError(f"the formula has {len(text)} characters, but the maximum is {LONGEST}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"{text!r} is not a formula; expected RULE(MEASURE), such as {EXAMPLE}"
        ) from None
    rules = get_args(Rule)
    if not isinstance(tree, ast.Call) or _name(tree.func) not in rules:
        raise InputError(f"{text!r} must be enclosed in a slide rule ({', '.join(rules)})")
    if len(tree.args) != 1 or tree.keywords:
        raise InputError(f"{text!r}: {_name(tree.func)} takes exactly one measure")
    measure = _expression(tree.args[0], text, DEEPEST)
    return build_node(Measurement, {"rule": _name(tree.func), "of": measure}, text)


def read_definitions(path: Path) -> list[Measurement]:
    """Read measurements from a file with a formula per line, ignoring blank lines and # comments.

    Raises `InputError` if a line is not a measurement, two measurements share a name, or the
    file has none.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path}: larger than {MAX_BYTES >> 20} MiB")
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    found: dict[str, Measurement] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        try:
            measurement = parse(text)
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if measurement.name in found:
            raise InputError(f"{path}, line {number}: duplicate measurement {measurement.formula}")
        found[measurement.name] = measurement
        if len(found) > MOST:
            raise InputError(f"{path}: contains more than {MOST} measurements")
    if not found:
        raise InputError(f"{path}: contains no measurements; write one formula per line")
    return list(found.values())


def keep_definitions(measurements: Sequence[Measurement], folder: Path) -> Path:
    """Write measurements to a file named after their content, and return its path."""
    text = "".join(f"{measurement.formula}\n" for measurement in measurements)
    digest = hash_text(text, digits=12)
    path = folder / f"definitions-{digest}.txt"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, text)
    return path


EXAMPLE = "mean(density(cells.lymphoid, within=regions.tumor))"


def _expression(tree: ast.expr, text: str, deeper: int) -> Node:
    if deeper < 0:
        raise InputError(f"{text!r} is nested too deeply")
    if isinstance(tree, ast.BinOp) and type(tree.op) in OPERATORS:
        sides = [_expression(side, text, deeper - 1) for side in (tree.left, tree.right)]
        fields = {"left": sides[0], "operator": OPERATORS[type(tree.op)], "right": sides[1]}
        return build_node(Arithmetic, fields, text)
    constant = _constant(tree)
    if isinstance(constant, float):
        return build_node(Quantity, {"value": constant, "measured_in": "1"}, text)
    if not isinstance(tree, ast.Call):
        raise InputError(
            f"unknown measure {show_source(tree)!r}; available measures: {', '.join(sorted(KINDS))}"
        )
    kind = KINDS.get(_name(tree.func))
    if kind is None:
        raise InputError(
            f"unknown measure {show_source(tree.func)!r}; "
            f"available measures: {', '.join(sorted(KINDS))}"
        )
    if kind is Log2:
        if len(tree.args) != 1 or tree.keywords:
            raise InputError(f"{show_source(tree)!r}: log2 takes exactly one measure")
        return build_node(Log2, {"of": _expression(tree.args[0], text, deeper - 1)}, text)
    return build_node(kind, _arguments(tree, kind), text)


def _arguments(tree: ast.Call, kind: type[Node]) -> dict[str, Any]:
    """Return values by field: fields without a default in order, then keyword arguments."""
    names = [name for name in kind.model_fields if name != "kind"]
    required = [name for name in names if kind.model_fields[name].is_required()]
    shown = ", ".join(
        name if name in required else f"{name}={kind.model_fields[name].default!r}"
        for name in [*required, *(name for name in names if name not in required)]
    )
    if len(tree.args) > len(required):
        raise InputError(f"{show_source(tree)!r} has too many arguments; it takes {shown}")
    found = {name: _argument(arg) for name, arg in zip(required, tree.args, strict=False)}
    for keyword in tree.keywords:
        if keyword.arg not in names or keyword.arg in found:
            raise InputError(
                f"{show_source(tree)!r}: argument {keyword.arg} is unknown or repeated"
            )
        found[keyword.arg] = _argument(keyword.value)
    if missing := [name for name in required if name not in found]:
        raise InputError(f"{show_source(tree)!r} requires {', '.join(missing)}")
    return found


def _argument(tree: ast.expr) -> Any:
    constant = _constant(tree)
    if constant is not None:
        return constant
    if isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name):
        source, name = tree.value.id, tree.attr
        if source == "cells":
            return {"source": "cells", "type": name}
        if source == "objects":
            return {"source": "objects", "type": name}
        if source == "regions":
            return {"area": "region", "name": name}
    if isinstance(tree, ast.Name):
        if tree.id == "cells":
            return {"source": "cells"}
        return {"area": "tissue"} if tree.id == "tissue" else tree.id
    if isinstance(tree, ast.Call) and _name(tree.func) == "margin" and not tree.keywords:
        given = [_argument(part) for part in tree.args]
        if len(given) == 3 and isinstance(given[0], dict) and given[0].get("area") == "region":
            margin = {"of": given[0]["name"], "inside_um": given[1], "outside_um": given[2]}
            return {"area": "margin", **margin}
    raise InputError(
        f"{show_source(tree)!r} is not a valid argument; expected cells, cells.TYPE, "
        "objects.KIND, tissue, regions.KIND, margin(regions.KIND, INSIDE_UM, "
        "OUTSIDE_UM), a number or a word"
    )


def _constant(tree: ast.expr) -> Any:
    """Return a number or a quoted string, or None for any other expression."""
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        value = _constant(tree.operand)
        return -value if isinstance(value, float) else None
    if not isinstance(tree, ast.Constant) or isinstance(tree.value, bool):
        return None
    if isinstance(tree.value, int | float):
        try:
            return float(tree.value)
        except OverflowError:
            raise InputError("a number in the formula is too large") from None
    return tree.value if isinstance(tree.value, str) else None


def build_node(model: type[M], fields: dict[str, Any], text: str) -> M:
    """Build a node from its fields; errors quote the formula's text."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        kind = model.model_fields.get("kind")
        named = kind.default if kind else "measurement"
        where = ".".join(
            str(part) for part in problem["loc"] if part not in ("cells", "objects", "region")
        )
        message = problem["msg"].removeprefix("Value error, ")
        of = f"{named}{f', {where}' if where else ''}"
        raise InputError(f"{text!r}: {of}: {message}") from None


def _name(tree: ast.expr) -> str:
    return tree.id if isinstance(tree, ast.Name) else ""


def show_source(tree: ast.expr) -> str:
    """Return the source of an expression, at most 120 characters."""
    return ast.unparse(tree)[:120]

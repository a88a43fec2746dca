"""Change the verdict's rules one comparison, constant or word at a time.

Each mutant is checked against the table in `verdict_table.py`, in this process. A mutant that no
row of the table notices survives.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import validation.verdict.verdict  # noqa: F401  (loads the modules that `load` replaces)
from tests.validation.verdict_table import Row, failures, rows
from validation.verdict.verdict import Evidence

ROOT = Path(__file__).resolve().parents[2]
RULES = (
    "validation/verdict/relevance.py",
    "validation/verdict/objections.py",
    "validation/verdict/verdict.py",
)
"""In the order in which they import one another."""
EQUIVALENT = {
    ("if relevant > 0", "Gt to GtE"): "the smallest relevant effect is never none",
    (
        "higher = effect.distance_from_null(effect.value) > 0",
        "Gt to GtE",
    ): "an effect of none is on neither side",
    (
        'return _prevents("replication", f"{text}: {against}")',
        "'replication' to 'multiplicity'",
    ): "the objection made of it names the rule again",
}
"""Mutants that change nothing, by the line they change and the change, with the reason."""

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
"""Each with what a slip makes of it; one that is turned round fails more rows than its border."""
WORDS = (
    ("yes", "no", "unclear", "not answered"),
    ("supported", "small_effect", "not_supported", "inconclusive"),
    ("for", "against", "limits", "prevents"),
    ("evidence", "power", "assumption", "data", "timing", "control", "independence", "relevance",
     "reproduction", "replication", "multiplicity", "registration"),
)  # fmt: skip
"""Words with a meaning for the rules: each is changed into the next of its kind."""


@dataclass(frozen=True)
class Mutant:
    """A changed module: what was changed, and where."""

    path: str
    line: int
    text: str
    change: str
    code: types.CodeType

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}: {self.text}"


def make_mutants(path: str, source: str) -> Iterator[Mutant]:
    """Yield every mutant of a module: comparisons, numbers, connectives, negations, words."""
    lines = source.splitlines()
    tree = ast.parse(source)
    for node, change, holder, key, new in list(find_places(tree)):
        if isinstance(new, ast.expr):
            ast.copy_location(new, node)
        old = _put(holder, key, new)
        changed = compile(tree, path, "exec")
        _put(holder, key, old)
        yield Mutant(path, node.lineno, lines[node.lineno - 1].strip(), change, changed)


def _put(holder: Any, key: Any, new: object) -> object:
    """Put `new` into a list or an attribute of a node; return the old value."""
    if isinstance(holder, list):
        old, holder[key] = holder[key], new
    else:
        old = getattr(holder, key)
        setattr(holder, key, new)
    return old


Place = tuple[ast.expr, str, Any, Any, object]


def find_places(tree: ast.Module) -> Iterator[Place]:
    """Yield each node that can be changed: the change, its holder and key, and the new value."""
    texts = _find_texts(tree)
    for node in ast.walk(tree):
        if id(node) in texts:
            continue
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                slip = COMPARISONS[type(operator)]
                yield node, f"{type(operator).__name__} to {slip.__name__}", node.ops, at, slip()
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, f"{type(node.op).__name__} to {other.__name__}", node, "op", other()
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not dropped", node, "operand", ast.UnaryOp(ast.Not(), node.operand)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, "minus dropped", node, "op", ast.UAdd()
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield node, "Mult to Div", node, "op", ast.Div()
        elif isinstance(node, ast.Constant):
            yield from _change_constant(node)


def _find_texts(tree: ast.Module) -> set[int]:
    """Nodes that are documentation, or choose the words of a printed text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.Subscript | ast.Assert):
            found |= {id(child) for child in ast.walk(node) if isinstance(child, ast.Constant)}
        elif isinstance(node, ast.JoinedStr) or (isinstance(node, ast.IfExp) and _chooses(node)):
            found |= {id(child) for child in ast.walk(node)}
        elif isinstance(node, ast.AnnAssign):
            child = node.annotation
            found |= {id(part) for part in ast.walk(child) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            for child in node.decorator_list:
                found |= {id(part) for part in ast.walk(child) if isinstance(part, ast.Constant)}
    return found


def _chooses(node: ast.IfExp) -> bool:
    """True if a condition picks one of two texts that mean nothing to the rules."""
    meaning = {word for kind in WORDS for word in kind}
    texts = [part for part in (node.body, node.orelse) if isinstance(part, ast.JoinedStr)]
    words = [
        part.value
        for part in (node.body, node.orelse)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]
    return bool(texts or words) and not meaning & set(words)


def _change_constant(node: ast.Constant) -> Iterator[Place]:
    value = node.value
    others: tuple[object, ...] = ()
    if isinstance(value, bool):
        others = (not value,)
    elif isinstance(value, int):
        others = (value + 1, value - 1)
    elif isinstance(value, float):
        others = (value * 1.1, value * 0.9) if value else (0.1, -0.1)
    elif isinstance(value, str):
        kinds = [kind for kind in WORDS if value in kind]
        others = tuple(kind[(kind.index(value) + 1) % len(kind)] for kind in kinds)
    for other in others:
        yield node, f"{value!r} to {other!r}", node, "value", other


def load_rules(codes: Mapping[str, types.CodeType], first: str) -> types.ModuleType:
    """Load the rules from these modules, `first` and those after it; return the last.

    Modules before `first`, and what is loaded already, stay as they are.
    """
    held = {}
    try:
        for path in RULES[RULES.index(first) :]:
            name = path.removesuffix(".py").replace("/", ".")
            module = types.ModuleType(name)
            held[name] = sys.modules[name]
            sys.modules[name] = module
            exec(codes[path], module.__dict__)
        return module
    finally:
        sys.modules.update(held)


def find_survivors() -> tuple[int, list[Mutant]]:
    """Count the mutants of the rules, and list those that no row of the table notices."""
    table = list(rows())
    given = {id(row): row.given() for row in table}
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in RULES}
    codes = {path: compile(source, path, "exec") for path, source in sources.items()}
    count, alive = 0, []
    for path in RULES:
        for mutant in make_mutants(path, sources[path]):
            count += 1
            noticed = _is_noticed(codes | {path: mutant.code}, path, table, given)
            if not noticed and (mutant.text, mutant.change) not in EQUIVALENT:
                alive.append(mutant)
    return count, alive


def _is_noticed(
    codes: Mapping[str, types.CodeType], first: str, table: list[Row], given: dict[int, Evidence]
) -> bool:
    """True if a row of the table fails under these modules, or they cannot run.

    The failing row goes first from then on: it is the likeliest to notice the next mutant.
    """
    try:
        rules = load_rules(codes, first)
        for at, row in enumerate(table):
            table.insert(0, table.pop(at))
            if failures(row, rules.judge, _convert(rules, given[id(row)])):
                return True
            table.insert(at, table.pop(0))
        return False
    except Exception:
        return True


def _convert(rules: types.ModuleType, given: Evidence) -> Evidence:
    """Convert evidence to the mutant's own class, so that its defaults count."""
    changed = {
        field.name: getattr(given, field.name)
        for field in fields(given)
        if getattr(given, field.name) is not field.default
    }
    converted: Evidence = rules.Evidence(**changed)
    return converted

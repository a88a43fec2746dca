"""Change the rules one comparison or constant at a time: does a test notice?

    python benchmarks/mutants.py
    python benchmarks/mutants.py --deciding
    python benchmarks/mutants.py validation/statistics/multiplicity.py \
        --tests tests/validation/test_stat_control.py

Without files, the rules of the verdict are mutated (`RULES`) and asked of the table in
`tests/validation/verdict_table.py`, in this process. `--deciding` mutates what decides results
elsewhere (`DECIDING`: path scores, the year that a graph is cut at, the judge of novelty, pixel
sizes, zones around a tumor, the ledger's file) and asks the tests named with it. With files, any
module can be tried; `path.py:name` is one function or class of it. Each such mutant is written into
a copy of the packages and the tests are run on it. Survivors are printed with their line; the exit
code is 1 if there is one that `EQUIVALENT` does not explain.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import signal
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.validation.verdict_table import Row
    from validation.verdict.verdict import Evidence

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RULES = (
    "validation/verdict/relevance.py",
    "validation/verdict/objections.py",
    "validation/verdict/verdict.py",
)
"""In the order in which they import one another."""
DECIDING: dict[tuple[str, ...], tuple[str, ...]] = {
    ("kg/paths/find.py:PathOptions", "kg/graph/time.py:as_of"): ("tests/kg/test_gr_past.py",),
    ("agents/novelty/judge.py:synthesize", "agents/novelty/judge.py:_flags",
     "agents/novelty/stance.py:score_of", "agents/novelty/stance.py:confidence"):
        ("tests/agents/test_nov_judge.py",),
    ("mcp_servers/slides/metadata.py:PLAUSIBLE_MPP", "mcp_servers/slides/metadata.py:number_pair",
     "mcp_servers/slides/metadata.py:aperio_mpp", "mcp_servers/slides/metadata.py:resolution_mpp",
     "mcp_servers/slides/metadata.py:ome_mpp"): ("tests/mcp_servers/test_sl_pixel_size.py",),
    ("mcp_servers/pathology/tls.py:band_um", "mcp_servers/pathology/tls.py:place",
     "mcp_servers/pathology/compute/tumor.py:zones"): ("tests/mcp_servers/test_sl_zones.py",),
    ("validation/ledger/journal.py:_appending",): ("tests/validation/test_ledger_durable.py",),
    ("kg/paths/scores.py",): ("tests/kg/test_gr_scores.py",),
}  # fmt: skip
"""What decides results outside the verdict, and the tests that should notice a change of it."""
LONGEST = 120
"""Seconds after which a mutant that does not end counts as noticed."""
EQUIVALENT: dict[tuple[str, str], str] = {
    **dict.fromkeys(
        [
            ("expected = np.where(background > 0, background, 1.0)", change)
            for change in ("Gt to GtE", "0 to -1", "1.0 to 1.1", "1.0 to 0.9")
        ],
        "only read where a path has entities of the category, and then the background has as well",
    ),
    (
        "divergence: Floats = np.maximum(terms.sum(axis=1), 0.0)",
        "0.0 to -0.1",
    ): "a divergence is never below zero but by rounding",
    (
        "confidence=max(confidence(seen, given.missing_sources), 0.8 if refuted else 0.0),",
        "0.0 to -0.1",
    ): "no confidence is below zero",
    ("max_hops: int = Field(default=5, ge=1, le=8)", "1 to 0"): "refused for being below min_hops",
    ("if relevant > 0:", "Gt to GtE"): "the smallest relevant effect is never none",
    ("near_one = values > 1.0 - 1e-4", "Gt to GtE"): "series and formula agree where they meet",
    **dict.fromkeys(
        [
            ("near_one = values > 1.0 - 1e-4", "0.0001 to 0.00011000000000000002"),
            ("near_one = values > 1.0 - 1e-4", "0.0001 to 9e-05"),
        ],
        "series and formula agree where they meet",
    ),
    **dict.fromkeys(
        [
            ("safe = np.where(near_one, 0.5, values)", "0.5 to 0.55"),
            ("safe = np.where(near_one, 0.5, values)", "0.5 to 0.45"),
        ],
        "the formula's value there is not used",
    ),
    (
        'return _prevents("replication", f"{text}: {against}")',
        "'replication' to 'multiplicity'",
    ): "the objection made of it names the rule again",
}
"""Mutants that change nothing, by the line they change and the change, with the reason."""

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.LtE),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
WORDS = (
    ("yes", "no", "unclear", "not answered"),
    ("supported", "not_supported", "inconclusive"),
    ("for", "against", "limits", "prevents"),
    ("evidence", "power", "assumption", "data", "timing", "control", "independence", "relevance",
     "reproduction", "replication", "multiplicity", "registration"),
)  # fmt: skip
"""Words with a meaning for the rules: each is changed into the next of its kind."""


@dataclass(frozen=True)
class Mutant:
    """A changed source: what was changed, and where."""

    path: str
    line: int
    text: str
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.change}: {self.text}"


def mutants(path: str, source: str, within: str = "") -> Iterator[Mutant]:
    """Every mutant of a module: comparisons, numbers, connectives, negations, words.

    `within` names a function, class or variable of it to stay in.
    """
    lines = source.splitlines()
    named = _lines_of(ast.parse(source), within) if within else range(1, len(lines) + 1)
    tree = ast.parse(source)
    for node, change, holder, key, new in list(_places(tree)):
        if node.lineno not in named:
            continue
        old = _put(holder, key, new)
        changed = ast.unparse(tree)
        _put(holder, key, old)
        yield Mutant(path, node.lineno, lines[node.lineno - 1].strip(), change, changed)


def _put(holder: Any, key: Any, new: object) -> object:
    """Put `new` into a list or an attribute of a node; what was there."""
    if isinstance(holder, list):
        old, holder[key] = holder[key], new
    else:
        old = getattr(holder, key)
        setattr(holder, key, new)
    return old


def _lines_of(tree: ast.Module, name: str) -> range:
    """The lines of a definition or an assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = [node.name]
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
        else:
            continue
        if name in names:
            return range(node.lineno, (node.end_lineno or node.lineno) + 1)
    raise SystemExit(f"nothing is called {name}")


Place = tuple[ast.expr, str, Any, Any, object]


def _places(tree: ast.Module) -> Iterator[Place]:
    """Each place that can be changed, how, what holds it under which key, and what comes there."""
    texts = _not_values(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            for at, operator in enumerate(node.ops):
                for other in COMPARISONS[type(operator)]:
                    change = f"{type(operator).__name__} to {other.__name__}"
                    yield node, change, node.ops, at, other()
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, f"{type(node.op).__name__} to {other.__name__}", node, "op", other()
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield node, "not dropped", node, "operand", ast.UnaryOp(ast.Not(), node.operand)
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            yield node, "minus dropped", node, "op", ast.UAdd()
        elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield node, "Mult to Div", node, "op", ast.Div()
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            if isinstance(node.value.func, ast.Attribute) and _is(node.value.func.value, "os"):
                dropped = f"{ast.unparse(node.value)} dropped"
                yield node.value, dropped, node, "value", ast.Constant(None)
        elif isinstance(node, ast.Constant) and id(node) not in texts:
            yield from _constants(node)


def _is(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _not_values(tree: ast.Module) -> set[int]:
    """Constants that are documentation, or parts of a printed text."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr | ast.JoinedStr | ast.Subscript | ast.Assert):
            found |= {id(child) for child in ast.walk(node) if isinstance(child, ast.Constant)}
        elif isinstance(node, ast.AnnAssign):
            child = node.annotation
            found |= {id(part) for part in ast.walk(child) if isinstance(part, ast.Constant)}
        elif isinstance(node, ast.ClassDef | ast.FunctionDef):
            for child in node.decorator_list:
                found |= {id(part) for part in ast.walk(child) if isinstance(part, ast.Constant)}
    return found


def _constants(node: ast.Constant) -> Iterator[Place]:
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


def load(sources: Mapping[str, str]) -> types.ModuleType:
    """The last of `RULES` with these sources in place of the files; nothing else changes."""
    held = {}
    try:
        for path in RULES:
            name = path.removesuffix(".py").replace("/", ".")
            module = types.ModuleType(name)
            held[name] = sys.modules[name]
            sys.modules[name] = module
            exec(compile(sources[path], path, "exec"), module.__dict__)
        return module
    finally:
        sys.modules.update(held)


def survivors_of_rules() -> tuple[int, list[Mutant]]:
    """How many mutants the rules of the verdict have, and which of them the table bears."""
    import validation.verdict.verdict  # noqa: F401  (the modules that `load` replaces are imported here)
    from tests.validation.verdict_table import rows

    table = list(rows())
    given = {id(row): row.given() for row in table}
    sources = {path: (ROOT / path).read_text(encoding="utf-8") for path in RULES}
    count, alive = 0, []
    for path in RULES:
        for mutant in mutants(path, sources[path]):
            count += 1
            noticed = _noticed(sources | {path: mutant.source}, table, given)
            if not noticed and (mutant.text, mutant.change) not in EQUIVALENT:
                alive.append(mutant)
    return count, alive


def _noticed(sources: Mapping[str, str], table: list[Row], given: dict[int, Evidence]) -> bool:
    """Whether a row of the table fails under these sources; one that cannot run is noticed.

    That row goes first from then on: it is the likeliest to notice the next one too.
    """
    from tests.validation.verdict_table import ORDER, failures

    try:
        rules = load(sources)
        if rules.ORDER != ORDER:
            return True
        for at, row in enumerate(table):
            table.insert(0, table.pop(at))
            if failures(row, rules.judge, _again(rules, given[id(row)])):
                return True
            table.insert(at, table.pop(0))
        return False
    except Exception:  # noqa: BLE001 - whatever a mutant breaks, it was noticed
        return True


def _again(rules: types.ModuleType, given: Evidence) -> Evidence:
    """The same evidence in the mutant's own class, so that its defaults count."""
    told = {
        field.name: getattr(given, field.name)
        for field in fields(given)
        if getattr(given, field.name) is not field.default
    }
    again: Evidence = rules.Evidence(**told)
    return again


def survivors_of_files(chosen: Mapping[tuple[str, ...], Sequence[str]]) -> tuple[int, list[Mutant]]:
    """The same for any files, with the tests named for them on a copy of the packages."""
    count, alive = 0, []
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "copy"
        skip = shutil.ignore_patterns(".git", ".venv", ".mypy_cache", "__pycache__", "runs")
        shutil.copytree(ROOT, copy, ignore=skip)
        for places, tests in chosen.items():
            if _fails(copy, tests):
                raise SystemExit(f"{' '.join(tests)} fail as they are")
            for place in places:
                path, _, within = place.partition(":")
                source = (copy / path).read_text(encoding="utf-8")
                for mutant in mutants(path, source, within):
                    count += 1
                    (copy / path).write_text(mutant.source, encoding="utf-8")
                    if not _fails(copy, tests) and (mutant.text, mutant.change) not in EQUIVALENT:
                        alive.append(mutant)
                        print(f"survived: {mutant}", flush=True)
                (copy / path).write_text(source, encoding="utf-8")
                print(f"{place}: {count} mutants so far, {len(alive)} survive", flush=True)
    return count, alive


def _fails(copy: Path, tests: Sequence[str]) -> bool:
    """Whether the tests fail on this copy, in a process that has only the libraries loaded."""
    import hypothesis  # noqa: F401  (these are loaded once, for all children)
    import networkx  # noqa: F401
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import pydantic  # noqa: F401
    import pytest
    import pytest_timeout  # noqa: F401
    import scipy.stats  # noqa: F401

    child = os.fork()
    if child == 0:
        signal.alarm(LONGEST)
        os.chdir(copy)
        sys.dont_write_bytecode = True
        sys.path[:] = [str(copy), *(place for place in sys.path if place != str(ROOT))]
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, 1)
        os.dup2(nothing, 2)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
        os._exit(int(pytest.main([*options, *tests])))
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def main() -> int:
    """Count mutants, print survivors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", help="modules to mutate; default: the verdict's rules")
    parser.add_argument("--tests", nargs="*", default=[], help="tests that should notice")
    parser.add_argument("--deciding", action="store_true", help="what decides elsewhere")
    given = parser.parse_args()
    if given.files and not given.tests:
        parser.error("name the --tests that should notice")
    if given.deciding:
        count, alive = survivors_of_files(DECIDING)
    elif given.files:
        count, alive = survivors_of_files({tuple(given.files): given.tests})
    else:
        count, alive = survivors_of_rules()
    print(f"{count} mutants, {len(alive)} survive")
    for (line, change), why in EQUIVALENT.items():
        print(f"counted as noticed: {change} in `{line}`: {why}")
    for mutant in alive:
        print(f"survived: {mutant}")
    return 1 if alive else 0


if __name__ == "__main__":
    raise SystemExit(main())

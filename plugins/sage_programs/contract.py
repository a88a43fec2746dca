"""A measurement as a program: its contract, and the code that it may contain.

    MEASUREMENT = {
        "name": "tls_reach",
        "sentence": "the mean radius of tertiary lymphoid structures, as of circles",
        "unit": "µm",
        "rule": "mean",
        "reads": ["objects.tls"],
        "parameters": {},
    }


    def measure(slide):
        ...
        return 123.4  # or None, where there is no value

`slide` contains only the items listed in `reads` (see `harness.Slide`). Numbers with a
unit are listed in `parameters`, under names that end with the unit (`radius_um`,
`least_um2`), and are passed to `measure` by name.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError, field_validator

from mcp_servers.measures.language import Code, Measurement, Rule
from mcp_servers.measures.maps import Name
from mcp_servers.measures.units import UnitName
from sage.core.errors import InputError, explain_validation
from sage.core.hashes import hash_text
from sage.core.models import Strict
from sandbox import policy

_IMPORTS = """
    __future__ bisect collections dataclasses functools heapq itertools math numpy operator scipy
    statistics typing
"""
_NAMES = "open print id hash memoryview getattr hasattr"
_ATTRIBUTES = """
    random load loads save savez savez_compressed savetxt loadtxt genfromtxt fromfile tofile dump
    dumps memmap DataSource lib testing f2py distutils io misc weave fromregex samples
    attrgetter methodcaller datetime64
"""
IMPORTS = frozenset(_IMPORTS.split())
"""Top-level modules that a measurement may import."""
FORBIDDEN_NAMES = frozenset(_NAMES.split())
FORBIDDEN_ATTRIBUTES = frozenset(_ATTRIBUTES.split())
"""Attributes that access files, random numbers, the date, or other attributes by name.

They are forbidden because a measurement must always have the same value for a slide.
"""
MAX_CHARACTERS = 20_000
MOST_PARAMETERS = 8
_READS = r"^(tissue|(cells|objects|regions)(\.\w{1,60})?)$"
_PATH = re.compile(r"[/\\]|\.\.|^~|\.(csv|tsv|json|toml|parquet|npz|npy|pkl|sqlite|txt|py)$", re.I)


class Contract(Strict):
    """A program's declaration: sentence, unit, rule, and inputs."""

    name: Name
    sentence: Annotated[str, StringConstraints(pattern=r"^the [^\"\\\n]{8,280}$")]
    unit: UnitName
    rule: Rule
    reads: tuple[
        Annotated[str, StringConstraints(pattern=_READS)],
        ...,
    ] = Field(min_length=1, max_length=16)
    parameters: dict[Name, Annotated[float, Field(allow_inf_nan=False)]] = Field(
        default_factory=dict, max_length=MOST_PARAMETERS
    )

    @field_validator("rule")
    @classmethod
    def _has_no_parts(cls, value: Rule) -> Rule:
        if value == "pooled":
            raise ValueError(
                "pooled sums require counts and areas, which a program does not return"
            )
        return value


@dataclass(frozen=True, slots=True)
class Program:
    """A program that was read and passed the static check, but was not run."""

    contract: Contract
    source: str
    digest: str

    @property
    def measurement(self) -> Measurement:
        """The program as a measurement in the measurement language, treated like other data."""
        contract = self.contract
        of = Code(
            name=contract.name,
            measured_in=contract.unit,
            sentence=contract.sentence,
            program=self.digest,
        )
        return Measurement(rule=contract.rule, of=of)


def read_program(path: Path) -> Program:
    """Read and check a program file without running it.

    Raises
    ------
    InputError
        If the code is not allowed or its contract is invalid; the message names the line.
    """
    try:
        if path.stat().st_size > 4 * MAX_CHARACTERS:
            raise InputError(f"{path}: longer than {MAX_CHARACTERS:,} characters")
        source = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return check_program(source, str(path))


def check_program(source: str, origin: str = "program") -> Program:
    """Check a program's source text; messages refer to it as `origin`."""
    if len(source) > MAX_CHARACTERS:
        raise InputError(f"{origin}: longer than {MAX_CHARACTERS:,} characters")
    if refused := policy.check(source, IMPORTS, sandboxed=False):
        raise InputError(f"{origin}, line {refused[0].line}: {refused[0].message}")
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if reason := _refusal(node):
            raise InputError(f"{origin}, line {getattr(node, 'lineno', 1)}: {reason}")
    contract = _contract(tree, origin)
    _check_function(tree, contract, origin)
    digest = hash_text(source)
    return Program(contract, source, digest)


def _refusal(node: ast.AST) -> str:
    """Return the reason to refuse a node in a measurement's code, or an empty string."""
    if isinstance(node, ast.Name) and node.id in FORBIDDEN_NAMES:
        return f"`{node.id}` is not allowed: a measurement may depend only on its slide"
    if isinstance(node, ast.Attribute) and node.attr in FORBIDDEN_ATTRIBUTES:
        return f"`.{node.attr}` is not allowed: a measurement may not use files or random numbers"
    if isinstance(node, ast.ImportFrom) and (
        {alias.name for alias in node.names} & FORBIDDEN_ATTRIBUTES
        or set((node.module or "").split(".")) & FORBIDDEN_ATTRIBUTES
    ):
        return "this import is not allowed: a measurement may not use files or random numbers"
    if isinstance(node, ast.Import) and any(
        set(alias.name.split(".")) & FORBIDDEN_ATTRIBUTES for alias in node.names
    ):
        return "this import is not allowed: a measurement may not use files or random numbers"
    if isinstance(node, ast.MatchClass):
        return "`match` on classes is not allowed: it accesses attributes by pattern"
    if isinstance(node, ast.Global | ast.Nonlocal):
        return "`global` and `nonlocal` are not allowed: slides are measured independently"
    if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.Yield | ast.YieldFrom):
        return "a measurement must be a plain function"
    return ""


def _contract(tree: ast.Module, origin: str) -> Contract:
    """Return the literal `MEASUREMENT`; the rest must be imports, constants, and functions."""
    given: ast.expr | None = None
    for place, node in enumerate(tree.body):
        doc = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef) or (doc and not place):
            continue
        named = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if not named or not isinstance(node, ast.Assign) or not _is_literal(node.value):
            raise InputError(
                f"{origin}, line {node.lineno}: besides MEASUREMENT, a program may contain only "
                "imports, constants and functions"
            )
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id == "MEASUREMENT":
            given = node.value
    if given is None:
        raise InputError(
            f"{origin}: MEASUREMENT = {{...}} with name, sentence, unit, rule is missing"
        )
    plain = _texts(tree, given)
    for text in (n for n in ast.walk(tree) if isinstance(n, ast.Constant) and n not in plain):
        if isinstance(text.value, str) and _PATH.search(text.value):
            raise InputError(
                f"{origin}, line {text.lineno}: this string looks like a path, but a measurement "
                "must not read files"
            )
    try:
        return Contract.model_validate_json(_json(ast.literal_eval(given)))
    except ValidationError as error:
        raise InputError(f"{origin}: MEASUREMENT: {explain_validation(error)}") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InputError(f"{origin}: MEASUREMENT is not a plain dictionary: {error}") from None


def _json(value: object) -> str:
    import json

    return json.dumps(value, allow_nan=False)


def _is_literal(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _texts(tree: ast.Module, given: ast.expr) -> set[ast.AST]:
    """Collect docstrings and the contract's texts, in which a slash is not a path (1/mm²)."""
    found = set(ast.walk(given))
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                found.add(first.value)
    return found


def _check_function(tree: ast.Module, contract: Contract, origin: str) -> None:
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "measure"]
    if len(functions) != 1:
        raise InputError(f"{origin}: exactly one function measure(slide) is required")
    arguments = functions[0].args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    if arguments.vararg or arguments.kwarg or names[1:] != list(contract.parameters):
        wanted = ", ".join(["slide", *contract.parameters])
        raise InputError(f"{origin}: measure must take ({wanted}), as declared in MEASUREMENT")

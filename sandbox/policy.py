"""Static checks of model-written code before it runs.

These checks are a courtesy to the model, which reads the messages and tries again. They are not the
security boundary; the sandbox is. Code that passes them is still treated as hostile.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Collection, Iterator
from functools import partial

from sage.core.models import Strict

_IMPORTS = """
    __future__ abc bisect collections contextlib copy csv dataclasses datetime decimal enum
    fractions functools heapq io itertools json logging math numbers operator pathlib random re
    statistics string sys textwrap time traceback types typing warnings
"""
_THIRD_PARTY = """
    lifelines matplotlib numpy pandas pyarrow pydantic scipy sklearn statsmodels validation
"""
ALLOWED_IMPORTS = frozenset((_IMPORTS + _THIRD_PARTY).split())
"""Top-level modules that an analysis may import."""

_CALLS = "__import__ breakpoint compile delattr eval exec globals input locals setattr vars"
FORBIDDEN_CALLS = frozenset(_CALLS.split())
"""Built-ins whose only use is to hide what the code does or to wait for user input."""
UNAVAILABLE = {
    "socket": "there is no network", "ssl": "there is no network",
    "http.client": "there is no network",
    "http.server": "there is no network", "urllib.request": "there is no network",
    "ftplib": "there is no network", "smtplib": "there is no network",
    "imaplib": "there is no network", "poplib": "there is no network",
    "xmlrpc": "there is no network", "socketserver": "there is no network",
    "webbrowser": "there is no display", "tkinter": "there is no display",
    "turtle": "there is no display", "curses": "there is no terminal",
    "pdb": "there is no terminal", "venv": "nothing can be installed",
    "ensurepip": "nothing can be installed",
}  # fmt: skip
"""Modules that cannot work in the sandbox, each with the reason."""
_BESIDE = """
    autograd contourpy cycler dateutil fontTools formulaic joblib kiwisolver mpl_toolkits narwhals
    packaging patsy PIL pytz six threadpoolctl typing_extensions wrapt
"""
BESIDE = frozenset(_BESIDE.split())
"""Modules that are installed along with the allowed ones."""

FORBIDDEN_ATTRIBUTES = {
    "ctypes": "reaches native memory",
    "ctypeslib": "loads native libraries",
    "read_pickle": "unpickling runs arbitrary code; read parquet or CSV",
    "to_pickle": "pickles cannot be read back; write parquet or CSV",
    "modules": "accesses the interpreter's modules",
    "f_globals": "walks frames",
    "f_locals": "walks frames",
    "f_builtins": "walks frames",
    "gi_frame": "walks frames",
    "tb_frame": "walks frames",
    "cr_frame": "walks frames",
    "_getframe": "walks frames",
    "os": "accesses another module through an attribute",
    "subprocess": "accesses another module through an attribute",
    "importlib": "accesses another module through an attribute",
    "builtins": "accesses another module through an attribute",
    "socket": "there is no network",
    "settrace": "changes the interpreter",
    "setprofile": "changes the interpreter",
}

_DUNDERS = (
    "__name__ __file__ __doc__ __version__ __init__ __post_init__ __len__ __iter__ __next__ "
    "__enter__ __exit__ __call__ __repr__ __str__ __eq__ __hash__ __lt__ __getitem__ __contains__ "
    "__all__ __annotations__ __future__"
)
ALLOWED_DUNDERS = frozenset(_DUNDERS.split())

MAX_CHARACTERS = 200_000


class Violation(Strict):
    """A construct forbidden by the policy. `line` counts from 1."""

    line: int
    message: str


def check(
    code: str, allowed: Collection[str] | None = None, *, sandboxed: bool = True
) -> list[Violation]:
    """List all policy violations in `code` by line; an empty list means that it may run.

    Parameters
    ----------
    code : Python source
    allowed : top-level modules that may be imported in addition to the standard library;
        those in `ALLOWED_IMPORTS` if None
    sandboxed : True if a sandbox confines the code, so that only constructs that cannot work
        there are rejected; if False, the code becomes part of an installation, and only
        `allowed` modules and plain constructs pass
    """
    if len(code) > MAX_CHARACTERS:
        return [Violation(line=1, message=f"the code is longer than {MAX_CHARACTERS} characters")]
    try:
        tree = ast.parse(code)
    except SyntaxError as wrong:
        return [Violation(line=wrong.lineno or 1, message=f"not valid Python: {wrong.msg}")]
    except (ValueError, RecursionError, MemoryError) as wrong:
        return [Violation(line=1, message=f"cannot be parsed as Python: {wrong}")]
    modules = frozenset(ALLOWED_IMPORTS if allowed is None else allowed)
    if sandboxed:
        own = {name for node in ast.walk(tree) for name in _bound(node)}
        refusals: Callable[[ast.AST], Iterator[str]] = partial(_futile, modules=modules, own=own)
    else:
        refusals = partial(_refusals, modules=modules)
    found = {
        (getattr(node, "lineno", 1), message)
        for node in ast.walk(tree)
        for message in refusals(node)
    }
    return [Violation(line=line, message=message) for line, message in sorted(found)]


def _bound(node: ast.AST) -> Iterator[str]:
    """Yield the names that a syntax node binds."""
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.alias):
        yield node.asname or node.name


def _futile(node: ast.AST, modules: frozenset[str], own: set[str]) -> Iterator[str]:
    """Yield the reasons why a single syntax node cannot work in the sandbox."""
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
    if isinstance(node, ast.ImportFrom):
        if node.level:
            yield "relative imports do not work here; import by full name"
        elif node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        parts = name.split(".")
        why = [UNAVAILABLE.get(".".join(parts[:end])) for end in range(1, len(parts) + 1)]
        if reason := next(filter(None, why), None):
            yield f"`{name}` does not work here: {reason}"
    if names and (top := names[0].split(".")[0]) not in modules | sys.stdlib_module_names | BESIDE:
        yield f"`{top}` is not installed here; installed are: " + ", ".join(
            sorted(modules - sys.stdlib_module_names)
        )
    called = node.func if isinstance(node, ast.Call) else None
    if isinstance(called, ast.Name) and called.id in {"input", "breakpoint"} - own:
        yield f"`{called.id}()` does not work here: nobody answers"


def _refusals(node: ast.AST, modules: frozenset[str]) -> Iterator[str]:
    """Yield the reasons for rejecting a single syntax node."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _module(alias.name, modules)
    elif isinstance(node, ast.ImportFrom):
        if node.level:
            yield "relative imports do not work here; import by full name"
        else:
            yield from _module(node.module or "", modules)
            for alias in node.names:
                yield from _attribute(alias.name)
    elif isinstance(node, ast.Attribute):
        yield from _attribute(node.attr)
    elif isinstance(node, ast.Name):
        if node.id in FORBIDDEN_CALLS:
            yield f"`{node.id}` is not allowed: write the code out"
        elif _walking(node.id) or node.id == "__builtins__":
            yield f"`{node.id}` is not allowed: no access to Python's internals"
    elif isinstance(node, ast.Call):
        yield from _call(node)
    elif isinstance(node, ast.Constant) and isinstance(node.value, str) and _walking(node.value):
        yield f'the string "{node.value}" refers to an internal of Python, which is not needed here'


def _module(name: str, modules: frozenset[str]) -> Iterator[str]:
    top = name.split(".")[0]
    if top not in modules:
        yield (
            f"import of `{top}` is not allowed; allowed are the standard library's "
            "mathematics and data modules and: "
            + ", ".join(sorted(modules - sys.stdlib_module_names or modules))
        )
    for part in name.split(".")[1:]:
        yield from _attribute(part)


def _attribute(name: str) -> Iterator[str]:
    if name in FORBIDDEN_ATTRIBUTES:
        yield f"`.{name}` is not allowed: it {FORBIDDEN_ATTRIBUTES[name]}"
    elif _walking(name):
        yield f"`.{name}` is not allowed: no access to Python's internals"


def _call(node: ast.Call) -> Iterator[str]:
    for keyword in node.keywords:
        if (
            keyword.arg == "allow_pickle"
            and isinstance(keyword.value, ast.Constant)
            and keyword.value.value
        ):
            yield "`allow_pickle=True` is not allowed: unpickling runs arbitrary code"
    dynamic = isinstance(node.func, ast.Name) and node.func.id in {"getattr", "hasattr"}
    if dynamic and len(node.args) > 1:
        name = node.args[1]
        if not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            yield "`getattr` with a computed name is not allowed: write the attribute's name"
        else:
            yield from _attribute(name.value)


def _walking(name: str) -> bool:
    """Check whether a name is a dunder without a legitimate use in an analysis."""
    return (
        len(name) > 4
        and name.startswith("__")
        and name.endswith("__")
        and name.isidentifier()
        and name not in ALLOWED_DUNDERS
        and name != "__main__"
    )

"""One question's work: its data and files as programs see them, the tools behind its calls.

Every step is a process of its own in the sandbox, which runs the earlier steps first; tools run
here, on the real files. Everything that a program leaves is read as hostile.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from agents.coding.accept import ENDINGS
from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.workers.base import Workers
from sage.core.errors import FaultError, InputError
from sage.core.printable import printable
from sage_nova.code_acting.inside import OWN, key_of, short
from sage_nova.code_acting.types import STEP_SECONDS, Called, Cell, Done, Given, Observation
from sandbox import policy
from sandbox.types import Job, Limits, Reason, Sandbox, SandboxResult

MOST_LISTED = 60
MOST_CALLS = 400
MOST_REQUESTS = 100
LARGEST_REQUEST = 1 << 20
LARGEST_RESULT = 16 << 20
DEFAULT_LIMITS = Limits(seconds=STEP_SECONDS, memory_mb=4096, cpus=2, output_mb=512)
_BESIDE = """
    cv2 geopandas h5py lifelines networkx openslide PIL queue scanpy seaborn shapely shutil skimage
    sksurv spatialdata stat torch torchvision tqdm unicodedata zarr
"""
IMPORTS = (policy.ALLOWED_IMPORTS - {"validation"}) | frozenset(_BESIDE.split())
"""NOVA's tables D.1 and D.2 beside what an analysis may import here, without pickle. What of it is
not installed gives an ImportError."""

BEGIN = "import random\nimport numpy\nrandom.seed(0)\nnumpy.random.seed(0)"
"""Runs before the steps, so that a program that draws from either draws the same again."""

_NAME = re.compile(r"[^A-Za-z0-9_.-]")
Told = Callable[[str], None]


class Eye(Protocol):
    """What of a step is told to whoever writes the next one, and which of its files are kept."""

    def see(
        self, steps: Sequence[tuple[int, str]], said: Mapping[str, Any], out: Path, files: Path
    ) -> dict[str, Any]:
        """The observation's fields.

        Parameters
        ----------
        steps : number and program of every step that stands, this one last
        said : what this one printed, its last value, its error, as the process left them
        out : what the programs wrote; may be moved or removed
        files : where that stays of which the names are told
        """
        ...

    def failed(self, ended: SandboxResult) -> str:
        """What is said of a process that did not come to its end."""
        ...


class Prints:
    """NOVA's eye: a model sees what its programs print, and the names of their files."""

    def see(
        self, steps: Sequence[tuple[int, str]], said: Mapping[str, Any], out: Path, files: Path
    ) -> dict[str, Any]:
        """See `Eye.see`."""
        shutil.rmtree(out / OWN, ignore_errors=True)
        shutil.rmtree(files, ignore_errors=True)
        out.rename(files)
        return {
            name: short(printable(str(said.get(name, ""))), 9000)
            for name in ("printed", "value", "error")
        }

    def failed(self, ended: SandboxResult) -> str:
        """See `Eye.failed`."""
        why = ENDINGS.get(ended.reason) or ended.message or "it left no result"
        return f"{why}\n{short(printable(ended.stderr_tail), 1500)}".strip()


@dataclass
class Session:
    """What one question has to work with, and what was done so far.

    Parameters
    ----------
    data : files and folders by the name under which programs see them (see `named`)
    registry : the tools
    sandbox : where programs run
    folder : gets what tools make (`made/`) and what programs leave (`files/`)
    limits : of one step; earlier steps, which run again, get time of their own
    on_event : told of every tool in a line
    eye : what of a step is told
    workers : other processes for the tools: a file of a program's that crashes one, or fills its
        memory, ends no session; None for this process
    """

    data: Mapping[str, Path]
    registry: Registry
    sandbox: Sandbox
    folder: Path
    limits: Limits = DEFAULT_LIMITS
    on_event: Told = lambda _: None
    eye: Eye = field(default_factory=Prints)
    workers: Workers | None = None
    done: list[Done] = field(default_factory=list)
    _answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    _before: float = 0.0

    def __post_init__(self) -> None:
        self.folder = self.folder.resolve()
        self.made, self.files = self.folder / "made", self.folder / "files"
        for place in (self.made, self.files):
            shutil.rmtree(place, ignore_errors=True)
            place.mkdir(parents=True)

    def act(self, cell: Cell) -> Observation:
        """Run a step after those before it, and say what came of it.

        Raises
        ------
        FaultError
            If the sandbox does not work.
        """
        number = len(self.done) + 1
        begun = time.monotonic()
        refused = policy.check(cell.code, IMPORTS)
        if refused:
            lines = [f"line {found.line}: {found.message}" for found in refused[:12]]
            seen = Observation(step=number, error="\n".join(lines), undone=True)
        else:
            seen = self._carry_out(number, cell)
        seen = seen.model_copy(update={"seconds": round(time.monotonic() - begun, 2)})
        self.done.append(Done(cell=cell, observation=seen))
        return seen

    def _carry_out(self, number: int, cell: Cell) -> Observation:
        calls: list[Called] = []
        steps = [*self.kept(), (number, cell.code)]
        for _ in range(MOST_REQUESTS):
            out = self.folder / "running"
            shutil.rmtree(out, ignore_errors=True)
            ended = self._process(steps, out)
            request = _read(out / OWN / "request.json")
            if ended.ok and isinstance(request, list):
                try:
                    self._serve(request, out, calls)
                except InputError as error:
                    return self._undone(number, str(error), calls)
                continue
            seen = _read(out / OWN / "seen.json")
            if not ended.ok or not isinstance(seen, dict):
                return self._undone(number, self.eye.failed(ended), calls)
            self._before = ended.usage.wall_seconds
            told = self.eye.see(steps, seen, out, self.files)
            return Observation(step=number, calls=tuple(calls), files=self.written(), **told)
        return self._undone(
            number,
            f"more than {MOST_REQUESTS} rounds of tool calls; ask for many at once with"
            " call_together([(tool, {argument: value}), ...])",
            calls,
        )

    def _undone(self, number: int, error: str, calls: list[Called]) -> Observation:
        return Observation(
            step=number, error=error, calls=tuple(calls), files=self.written(), undone=True
        )

    def kept(self) -> list[tuple[int, str]]:
        """The steps that stand, with their numbers."""
        return [
            (done.observation.step, done.cell.code)
            for done in self.done
            if not done.observation.undone
        ]

    def _process(self, steps: list[tuple[int, str]], out: Path) -> SandboxResult:
        inputs = dict(self.data)
        if any(self.made.iterdir()):
            inputs["made"] = self.made
        session = {
            "begin": BEGIN,
            "steps": steps,
            "tools": sorted(self.registry.tools),
            "answers": self._answers,
        }
        inside = Path(__file__).with_name("inside.py").read_text(encoding="utf-8")
        ended = self.sandbox.run(
            Job(
                files={"inside.py": inside, "session.json": json.dumps(session)},
                command=("python", "-I", "inside.py"),
                inputs=inputs,
                output=out,
                limits=self.limits.model_copy(
                    update={"seconds": self.limits.seconds + 2 * self._before}
                ),
                offers_sage=False,
                label="ask-slides",
            )
        )
        if ended.reason is Reason.UNAVAILABLE:
            raise FaultError(f"the sandbox went away: {ended.message}")
        return ended

    def _serve(self, request: list[Any], out: Path, calls: list[Called]) -> None:
        """Run the requested tools and keep their answers."""
        if not self.registry.tools:
            raise InputError("there are no tools here")
        for asked in request:
            if not (isinstance(asked, list) and [type(part) for part in asked] == [str, dict, int]):
                raise InputError("a call is (tool, {argument: value})")
            if len(self._answers) >= MOST_CALLS:
                raise InputError(f"more than {MOST_CALLS} tool calls for one question")
            name, arguments, again = asked
            key = key_of(name, arguments, again)
            if key in self._answers:
                continue
            begun = time.monotonic()
            self.on_event(f"{name} …")
            answer = self._call(name, arguments, out)
            self._answers[key] = answer
            seconds = round(time.monotonic() - begun, 2)
            calls.append(Called(tool=name, seconds=seconds, error=answer.get("error")))

    def _call(self, name: str, arguments: dict[str, Any], out: Path) -> dict[str, Any]:
        own = out.resolve()  # what a program wrote may be read, and is never a model to run
        roots = Roots((*self.data.values(), own), self.made, made=(own,))
        try:
            spec = self.registry.get(name)
            real = _mapped(arguments, lambda text: self._real(text, out))
            if self.workers is not None:
                run = self.workers.run(spec.name, real, roots)
            else:
                run = self.registry.run(spec.name, real, ToolContext(roots=roots, memory_mb=4096))
        except (InputError, FaultError) as error:
            return {"error": short(self._shown(str(error), out), 2000)}
        made = {output.name for output in run.outputs}
        folders = {str(parent) for name in made for parent in PurePosixPath(name).parents} - {"."}
        names = {name: f"/inputs/made/{name}" for name in made | folders}
        result = _mapped(run.result, lambda text: names.get(text) or self._shown(text, out))
        if made:
            result |= {"outputs": [names[name] for name in sorted(made)]}
        if len(json.dumps(result)) > LARGEST_RESULT:
            return {"error": f"the result of {name} is larger than {LARGEST_RESULT >> 20} MiB"}
        return {"result": result}

    def _real(self, text: str, out: Path) -> str:
        """A path of a program's as the path here; other texts as they are."""
        for seen, real in self._places(out):
            if text == seen or text.startswith(f"{seen}/"):
                return f"{real}{text[len(seen) :]}"
        return text

    def _shown(self, text: str, out: Path) -> str:
        """A text with the paths here as programs see them."""
        for seen, real in self._places(out):
            text = text.replace(str(real), seen)
        return text

    def _places(self, out: Path) -> list[tuple[str, Path]]:
        own = [("/inputs/made", self.made), ("/output", out.resolve())]
        return own + [(f"/inputs/{name}", path) for name, path in self.data.items()]

    def written(self) -> tuple[str, ...]:
        """Names of what the programs left, the first ones."""
        found = (path for path in sorted(self.files.rglob("*")) if path.is_file())
        return tuple(path.relative_to(self.files).as_posix() for path in found)[:MOST_LISTED]

    def own_functions(self) -> tuple[str, ...]:
        """Functions that the standing steps define themselves, in order."""
        defined = (
            node.name
            for _, code in self.kept()
            for node in ast.parse(code).body
            if isinstance(node, ast.FunctionDef)
        )
        return tuple(dict.fromkeys(defined))

    def shown(self) -> tuple[Given, ...]:
        """The data as programs see them."""
        given = []
        for name, path in self.data.items():
            inner = (
                sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else []
            )
            given.append(
                Given(
                    path=f"/inputs/{name}",
                    kind="folder" if path.is_dir() else "file",
                    name=path.name if name != path.name and name.endswith(_plain(path)) else "",
                    files=tuple(item.relative_to(path).as_posix() for item in inner[:MOST_LISTED]),
                    more=max(0, len(inner) - MOST_LISTED),
                )
            )
        return tuple(given)


def named(paths: Iterable[Path]) -> dict[str, Path]:
    """Files and folders by a plain name each, as programs see them below /inputs.

    Raises
    ------
    InputError
        If a path does not exist.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise InputError(f'"{path}" does not exist; give slides, images, tables or folders')
        stem = _plain(path)
        name, number = stem, 2
        while name in found or name == "made":
            name, number = f"{number}_{stem}", number + 1
        found[name] = path.resolve()
    return found


def _plain(path: Path) -> str:
    """A path's name in letters that any program takes."""
    return _NAME.sub("_", path.absolute().name)[-190:].lstrip(".-") or "data"


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A JSON value with each of its texts changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value


def _read(path: Path) -> Any:
    """A file that a program may have written, as JSON; None where it cannot be read."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_REQUEST:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None

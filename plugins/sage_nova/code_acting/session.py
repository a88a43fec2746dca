"""Session for a question, with the data, files and tools that its programs use.

Every step is a separate process in the sandbox that runs the earlier steps first; tools
run outside, on the real files. All program output is treated as hostile.
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
from typing import Any

from agents.coding.accept import ENDINGS
from mcp_servers.context import ToolContext
from mcp_servers.registry import Registry
from mcp_servers.roots import Roots
from mcp_servers.spec import map_texts
from mcp_servers.workers.base import Workers
from sage.core.errors import FaultError, InputError
from sage.core.printable import clean_text
from sage_nova.code_acting.inside import OWN, hash_call, truncate
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
"""Modules from NOVA's tables D.1 and D.2 (without pickle), and others allowed in analyses."""

BEGIN = "import random\nimport numpy\nrandom.seed(0)\nnumpy.random.seed(0)"
"""Code that runs before the steps, so that random draws are reproducible."""

_NAME = re.compile(r"[^A-Za-z0-9_.-]")


class StepView:
    """Selection of what the author of the next step sees, and of the files to keep.

    In NOVA, the model sees its programs' printed output and the names of their files.
    """

    def observe(
        self, steps: Sequence[tuple[int, str]], output: Mapping[str, Any], out: Path, files: Path
    ) -> dict[str, Any]:
        """Return the fields for a step's observation.

        Parameters
        ----------
        steps : number and program of every step that counts, the current step last
        output : printed text, last value and error of the current step, as the process left them
        out : files that the programs wrote; may be moved or removed
        files : folder for the files whose names are shown
        """
        shutil.rmtree(out / OWN, ignore_errors=True)
        shutil.rmtree(files, ignore_errors=True)
        out.rename(files)
        return {
            name: truncate(clean_text(str(output.get(name, ""))), 9000)
            for name in ("printed", "value", "error")
        }

    def describe_failure(self, ended: SandboxResult) -> str:
        """Describe a process that did not finish."""
        why = ENDINGS.get(ended.reason) or ended.message or "it wrote no result"
        return f"{why}\n{truncate(clean_text(ended.stderr_tail), 1500)}".strip()


@dataclass
class Session:
    """Data, tools, and steps for a question.

    Parameters
    ----------
    data : files and folders by the names that programs see (see `name_inputs`)
    folder : receives files from tools (`made/`) and from programs (`files/`)
    limits : limits for a step; earlier steps, which run again, get extra time
    on_event : called with a line about every tool call
    workers : other processes for the tools, so that a file that crashes a tool does not end
        the session; None for this process
    """

    data: Mapping[str, Path]
    registry: Registry
    sandbox: Sandbox
    folder: Path
    limits: Limits = DEFAULT_LIMITS
    on_event: Callable[[str], None] = lambda _: None
    view: StepView = field(default_factory=StepView)
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
        """Run a step after the earlier steps, and observe it.

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
            seen = self._run(number, cell)
        seen = seen.model_copy(update={"seconds": round(time.monotonic() - begun, 2)})
        self.done.append(Done(cell=cell, observation=seen))
        return seen

    def _run(self, number: int, cell: Cell) -> Observation:
        calls: list[Called] = []
        steps = [*self.kept_steps(), (number, cell.code)]
        for _ in range(MOST_REQUESTS):
            out = self.folder / "running"
            shutil.rmtree(out, ignore_errors=True)
            ended = self._process(steps, out)
            request = _read_json(out / OWN / "request.json")
            if ended.ok and isinstance(request, list):
                try:
                    self._serve(request, out, calls)
                except InputError as error:
                    return self._undone(number, str(error), calls)
                continue
            seen = _read_json(out / OWN / "seen.json")
            if not ended.ok or not isinstance(seen, dict):
                return self._undone(number, self.view.describe_failure(ended), calls)
            self._before = ended.usage.wall_seconds
            fields = self.view.observe(steps, seen, out, self.files)
            return Observation(step=number, calls=tuple(calls), files=self.list_files(), **fields)
        return self._undone(
            number,
            f"more than {MOST_REQUESTS} rounds of tool calls; make many at once with "
            "call_together([(tool, {argument: value}), ...])",
            calls,
        )

    def _undone(self, number: int, error: str, calls: list[Called]) -> Observation:
        return Observation(
            step=number, error=error, calls=tuple(calls), files=self.list_files(), undone=True
        )

    def kept_steps(self) -> list[tuple[int, str]]:
        """Return the number and code of each step that was not undone."""
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
                label="nova-ask",
            )
        )
        if ended.reason is Reason.UNAVAILABLE:
            raise FaultError(f"the sandbox is unavailable: {ended.message}")
        return ended

    def _serve(self, request: list[Any], out: Path, calls: list[Called]) -> None:
        """Run the requested tools and store their answers."""
        if not self.registry.tools:
            raise InputError("this session has no tools")
        for call in request:
            if not (isinstance(call, list) and [type(part) for part in call] == [str, dict, int]):
                raise InputError("expected a call as (tool, {argument: value})")
            if len(self._answers) >= MOST_CALLS:
                raise InputError(f"more than {MOST_CALLS} tool calls for one question")
            name, arguments, again = call
            key = hash_call(name, arguments, again)
            if key in self._answers:
                continue
            begun = time.monotonic()
            self.on_event(f"{name} …")
            answer = self._call(name, arguments, out)
            self._answers[key] = answer
            seconds = round(time.monotonic() - begun, 2)
            calls.append(Called(tool=name, seconds=seconds, error=answer.get("error")))

    def _call(self, name: str, arguments: dict[str, Any], out: Path) -> dict[str, Any]:
        own = out.resolve()  # a program's files may be read, but are never run as a model
        roots = Roots((*self.data.values(), own), self.made, made=(own,))
        try:
            spec = self.registry.get(name)
            real = map_texts(arguments, lambda text: self._from_sandbox(text, out))
            if self.workers is not None:
                run = self.workers.run(spec.name, real, roots)
            else:
                run = self.registry.run(spec.name, real, ToolContext(roots=roots, memory_mb=4096))
        except (InputError, FaultError) as error:
            return {"error": truncate(self._to_sandbox(str(error), out), 2000)}
        made = {output.name for output in run.outputs}
        folders = {str(parent) for name in made for parent in PurePosixPath(name).parents} - {"."}
        names = {name: f"/inputs/made/{name}" for name in made | folders}
        result = map_texts(run.result, lambda text: names.get(text) or self._to_sandbox(text, out))
        if made:
            result |= {"outputs": [names[name] for name in sorted(made)]}
        if len(json.dumps(result)) > LARGEST_RESULT:
            return {"error": f"the result of {name} is larger than {LARGEST_RESULT >> 20} MiB"}
        return {"result": result}

    def _from_sandbox(self, text: str, out: Path) -> str:
        """Translate a sandbox path to the real path; return other text unchanged."""
        for seen, real in self._places(out):
            if text == seen or text.startswith(f"{seen}/"):
                return f"{real}{text[len(seen) :]}"
        return text

    def _to_sandbox(self, text: str, out: Path) -> str:
        """Translate real paths in a text to sandbox paths."""
        for seen, real in self._places(out):
            text = text.replace(str(real), seen)
        return text

    def _places(self, out: Path) -> list[tuple[str, Path]]:
        own = [("/inputs/made", self.made), ("/output", out.resolve())]
        return own + [(f"/inputs/{name}", path) for name, path in self.data.items()]

    def list_files(self) -> tuple[str, ...]:
        """List the names of files that programs wrote (at most `MOST_LISTED`)."""
        found = (path for path in sorted(self.files.rglob("*")) if path.is_file())
        return tuple(path.relative_to(self.files).as_posix() for path in found)[:MOST_LISTED]

    def own_functions(self) -> tuple[str, ...]:
        """List the names of functions defined in the kept steps, in order."""
        defined = (
            node.name
            for _, code in self.kept_steps()
            for node in ast.parse(code).body
            if isinstance(node, ast.FunctionDef)
        )
        return tuple(dict.fromkeys(defined))

    def describe_data(self) -> tuple[Given, ...]:
        """Describe the data paths as programs see them."""
        given = []
        for name, path in self.data.items():
            inner = (
                sorted(item for item in path.rglob("*") if item.is_file()) if path.is_dir() else []
            )
            given.append(
                Given(
                    path=f"/inputs/{name}",
                    kind="folder" if path.is_dir() else "file",
                    name=path.name
                    if name != path.name and name.endswith(_plain_name(path))
                    else "",
                    files=tuple(item.relative_to(path).as_posix() for item in inner[:MOST_LISTED]),
                    more=max(0, len(inner) - MOST_LISTED),
                )
            )
        return tuple(given)


def name_inputs(paths: Iterable[Path]) -> dict[str, Path]:
    """Give each file and folder a unique plain name that programs see under /inputs.

    Raises
    ------
    InputError
        If a path does not exist.
    """
    found: dict[str, Path] = {}
    for path in paths:
        if not path.exists():
            raise InputError(f'"{path}" does not exist; give slides, images, tables or folders')
        stem = _plain_name(path)
        name, number = stem, 2
        while name in found or name == "made":
            name, number = f"{number}_{stem}", number + 1
        found[name] = path.resolve()
    return found


def _plain_name(path: Path) -> str:
    """Return a path's name with only safe characters."""
    return _NAME.sub("_", path.absolute().name)[-190:].lstrip(".-") or "data"


def _read_json(path: Path) -> Any:
    """Read JSON that a program may have written; None if it is unreadable."""
    try:
        if path.is_symlink() or path.stat().st_size > LARGEST_REQUEST:
            return None
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None

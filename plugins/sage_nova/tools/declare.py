"""Declaration of NOVA's tools: their names, the paper's arguments, results, and a job's folder."""

from __future__ import annotations

import contextlib
import inspect
import json
import shutil
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

from pydantic import BaseModel, Field, create_model

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import Device, Given
from mcp_servers.spec import (
    ATTRIBUTE,
    DEFAULT_RESOURCES,
    InputPath,
    Resources,
    SlidePath,
    Validity,
)
from mcp_servers.spec import (
    tool as declare_tool,
)
from sage.core.errors import InputError

TISSUES, TILES, FEATURES = "tissues", "tissue_tiles", "handcrafted_tissue_tiles"
"""Default store keys for tissue, tiles, and features."""
ELSEWHERE = "; if another call created it, set job_dir to the folder of its files"
"""Remedy reported over MCP, where each call writes to a separate folder."""
Key = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,120}$")]
Folder = Annotated[str, Field(max_length=500, description="Folder in the output folder")]
Result = dict[str, Any]
F = TypeVar("F", bound=Callable[..., Result])


class NovaResult(BaseModel):
    """A call's log and warnings."""

    operations_log: list[str] = Field(default_factory=list)
    warnings: list[str] = Field(default_factory=list)


def tool(
    name: str, resources: Resources = DEFAULT_RESOURCES, *, validity: Validity | None = None,
    memory_mb: Callable[[Any], int] | None = None, **returns: Any,
) -> Callable[[F], F]:  # fmt: skip
    """Declare a function `(given: Group, context, *, argument=default, ...)` as NOVA's tool `name`.

    The tool takes the fields of `Group` and the keyword arguments; `returns` are the types of
    its results by name. The docstring is its summary. Results are not cached, since they also
    depend on the files in the job's folder.
    """

    def attach(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        own: dict[str, Any] = {
            part.name: (hints[part.name], ... if part.default is part.empty else part.default)
            for part in inspect.signature(function).parameters.values()
            if part.kind is part.KEYWORD_ONLY
        }
        given = create_model(f"{name}_input", __base__=hints["given"], **own)
        fields: dict[str, Any] = {field: (kind, ...) for field, kind in returns.items()}
        result = create_model(f"{name}_result", __base__=NovaResult, **fields)

        def call(given: Any, context: ToolContext) -> NovaResult:
            arguments = {part: getattr(given, part) for part in own}
            return result.model_validate(function(given, context, **arguments))

        call.__annotations__ = {"given": given, "context": ToolContext, "return": result}
        call.__module__, call.__qualname__ = function.__module__, function.__qualname__
        summary = " ".join((function.__doc__ or "").split())
        declare = declare_tool(
            name, "nova", "2.0.0", summary, resources, validity, cacheable=False,
            memory_mb=memory_mb,
        )  # fmt: skip
        setattr(function, ATTRIBUTE, getattr(declare(call), ATTRIBUTE))
        return function

    return attach


def described(kind: Any, text: str) -> Any:
    """Return a result's type with its description."""
    return Annotated[kind, Field(description=text)]


class JobInput(Given):
    """A job, given by the folder with its tools' files."""

    job_dir: str = Field(
        default="nova", min_length=1, max_length=1024,
        description="Folder of the job: a name in the output folder, or a folder written by an "
        "earlier call",
    )  # fmt: skip


class WsiInput(JobInput):
    """A slide in a job."""

    wsi_path: SlidePath = Field(description="Slide or image file")
    base_mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per level-0 pixel, overriding the file"
    )


class StoreInput(WsiInput):
    """A slide and the treatment of its store."""

    load_from_src: bool = Field(
        default=True,
        description="Keep the contents of the job's store; if false, start a new store",
    )
    overwrite: bool = Field(default=False, description="Recompute existing results")
    tissue_key: Key = TISSUES


class GridInput(JobInput):
    """Options for a patch grid."""

    target_magnification: float = Field(
        default=20, ge=0.3125, le=100, description="Magnification: 10 / µm per pixel"
    )
    patch_size: int = Field(
        default=512, ge=16, le=4096, description="Side of a patch, in pixels at this magnification"
    )
    overlap: int = Field(
        default=0, ge=0, description="Overlap of patches, in pixels at this magnification"
    )
    saveto_folder: str | None = Field(
        default=None,
        max_length=200,
        description="Name of the grid; default: MAGx_SIZEpx_OVERLAPpx_overlap",
    )

    def grid_folder(self) -> str:
        """Return the grid's folder in the job, by default with Trident's name."""
        own = f"{self.target_magnification:g}x_{self.patch_size}px_{self.overlap}px_overlap"
        return self.saveto_folder or own


class ModelWeights(Given):
    """Location of a model's weights."""

    weights: InputPath | None = Field(
        default=None,
        description="Folder with the weights, or the model's graph (ONNX, TorchScript)",
    )


class NetworkWeights(ModelWeights):
    """Location of a network's weights, and the device that runs it."""

    device: Device = "auto"


class Job:
    """A job's folder; files are written to the output folder, and read from it or earlier calls.

    `name` is the folder's name within the output folder.
    """

    def __init__(self, job_dir: str, context: ToolContext) -> None:
        """Open a job's folder; raises `InputError` if it is outside the roots."""
        self.context = context
        self.earlier: Path | None = None
        output, given = context.roots.output, Path(job_dir)
        if given.is_absolute() and given.resolve().is_relative_to(output):
            self.name = given.resolve().relative_to(output).as_posix()
        elif given.is_absolute():
            self.earlier = context.roots.input(job_dir, "folder")
            self.name = self.earlier.name
        else:
            self.name = given.as_posix()
            with contextlib.suppress(InputError):
                self.earlier = context.roots.input(job_dir, "folder")
                if not (output / given).is_dir():
                    self.name = self.earlier.name  # so that paths do not grow with each call
        context.roots.write_path(self.out("x"), make=False)

    def out(self, name: str) -> str:
        """Return the job's name for the file `name`, relative to the output folder."""
        return f"{self.name}/{name}" if self.name != "." else name

    def find(self, name: str) -> Path | None:
        """Return the path of a file or folder in the job, or None."""
        for folder in (self.context.roots.output / self.name, self.earlier):
            path = None if folder is None else (folder / name).resolve()
            if path is not None and self.context.roots.allows(path) and path.exists():
                return self.context.input(path)
        return None

    def need(self, name: str, remedy: str) -> Path:
        """Find a file or folder in the job; raises `InputError` with the remedy without one."""
        found = self.find(name)
        if found is None:
            raise InputError(f"job {self.name} has no {name}: {remedy}{ELSEWHERE}")
        return found


@contextlib.contextmanager
def house(context: ToolContext) -> Iterator[ToolContext]:
    """Make a context for a tool of the house, whose files are removed at the end."""
    part = replace(context, roots=context.roots.below(f".house-{context.tag}"), written=[])
    try:
        yield part
    finally:
        shutil.rmtree(part.roots.output, ignore_errors=True)


def keep_file(part: ToolContext, made: str, context: ToolContext, name: str) -> str:
    """Keep a file of a tool of the house as the output `name`, and return the name."""
    with context.writing(name) as path:
        (part.roots.output / made).rename(path)
    return name


def write_json(context: ToolContext, name: str, value: object) -> str:
    """Write JSON below the output folder and return its name."""
    with context.writing(name) as path:
        path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
    return name


def write_vectors(context: ToolContext, name: str, key: str, vectors: Any, encoder: str) -> str:
    """Write an encoder's vectors as HDF5 with the dataset `key`, and return the name."""
    import h5py

    with context.writing(name) as path, h5py.File(path, "w") as file:
        file.create_dataset(key, data=vectors).attrs["encoder"] = encoder
    return name


def list_choices(words: Collection[Any]) -> str:
    """List what is available, for a message."""
    return ", ".join(map(str, list(words)[:30])) or "none"


def check_unique(names: list[str], folder: str) -> None:
    """Raise `InputError` if two files have the same stem, under which results are stored."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InputError(
            f'{folder}: two files are named "{twice}", but results use the file name; rename one '
            "file"
        )

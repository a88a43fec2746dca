"""Tool specifications: input and output models, the card, and the decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, Field, ValidationError

from mcp_servers.context import ToolContext
from mcp_servers.roots import Roots
from sage.core.errors import InputError, explain_validation
from sage.core.models import Strict

ATTRIBUTE = "__sage_tool__"


@dataclass(frozen=True)
class PathRole:
    """Annotation that marks a field as the name of an input or output file or folder.

    `slides` declares that a call processes the slide, or all slides in the folder.
    """

    role: Literal["input", "output"]
    slides: bool = False


InputPath = Annotated[str, PathRole("input"), Field(max_length=1024)]
"""A file or folder to read, relative or absolute within a root."""
SlidePath = Annotated[str, PathRole("input", slides=True), Field(max_length=1024)]
"""A slide, or a folder of slides, that a call processes and that counts toward quotas."""
OutputName = Annotated[str, PathRole("output"), Field(max_length=1024)]
"""Name of a file written by a tool, relative to the output folder."""


class Card(Strict):
    """Base class for frozen descriptions of tools."""


class Resources(Card):
    """Resources needed by a call, in MiB and in seconds per core.

    `memory_note` describes the memory needed with other arguments.
    """

    cpu: int = Field(default=1, ge=1)
    memory_mb: int = Field(default=512, ge=16)
    memory_note: str = ""
    gpu: Literal["none", "optional", "required"] = "none"
    seconds_per_item: float | None = Field(default=None, ge=0)


DEFAULT_RESOURCES = Resources()


class Validity(Card):
    """Conditions under which a tool is valid.

    `mpp` is the range of pixel sizes in µm. `training_data` describes the data that a learned
    method was trained on, and `tcga_overlap` their overlap with TCGA. `accuracy` reports
    measured values and the data used.
    """

    stain: str | None = None
    mpp: tuple[float, float] | None = None
    organ: str | None = None
    training_data: str | None = None
    tcga_overlap: str | None = None
    known_failures: tuple[str, ...] = ()
    accuracy: str | None = None


class Output(Card):
    """A file written by a tool; `name` is relative to the output folder."""

    name: str
    bytes: int
    sha256: str
    mime: str


class Provenance(Card):
    """Origin of a result. `inputs` maps each file or folder that was read to its SHA-256."""

    tool: str
    version: str
    arguments: dict[str, Any]
    inputs: dict[str, str]
    seconds: float
    cached: bool = False
    device: str = "cpu"


class ToolRun(Card):
    """A tool's result as plain data, the files it wrote, and their provenance."""

    result: dict[str, Any]
    outputs: tuple[Output, ...] = ()
    provenance: Provenance

    @property
    def cached(self) -> bool:
        """True if the result came from the cache."""
        return self.provenance.cached


@dataclass(frozen=True)
class ToolSpec:
    """A tool's entry in the registry."""

    name: str
    suite: str
    version: str
    summary: str
    function: Callable[[Any, ToolContext], BaseModel]
    given: type[BaseModel]
    returns: type[BaseModel]
    resources: Resources = DEFAULT_RESOURCES
    validity: Validity | None = None
    license: str | None = None
    cacheable: bool = True
    fingerprint: Callable[[Any], str] | None = None
    memory_mb: Callable[[Any], int] | None = None
    acts: bool = False
    source: str = ""
    title: str = ""

    def __post_init__(self) -> None:
        """Derive the title from the name if none is given."""
        if not self.title:
            object.__setattr__(self, "title", self.name.replace("_", " ").capitalize())

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema for the arguments."""
        return self.given.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        """JSON schema for the result."""
        return self.returns.model_json_schema(mode="serialization")

    @property
    def read_only(self) -> bool:
        """True if a call writes no file and starts nothing."""
        return not self.acts and not _has_output(self.returns, set())

    def needs(self, given: BaseModel) -> Resources:
        """Return the resources needed by a call with these arguments.

        A GPU is included only if it would be used: not with device = "cpu", and, for a tool that
        uses the CPU by default, only if the arguments name a network.
        """
        own: dict[str, Any] = {} if self.memory_mb is None else {"memory_mb": self.memory_mb(given)}
        device = wanted_device(given)
        network = getattr(given, "weights", None) or getattr(given, "model", None)
        if self.resources.gpu == "optional" and device == "cpu":
            own["gpu"] = "none"
        elif self.resources.gpu == "none" and device not in ("", "cpu") and network:
            own["gpu"] = "optional"
        return self.resources.model_copy(update=own)

    def count_slides(self, arguments: Mapping[str, Any], roots: Roots) -> int:
        """Count the slides that a call would process.

        Raises `InputError` if any of them does not exist below the roots.
        """
        named = [
            arguments.get(name)
            for name, info in self.given.model_fields.items()
            if any(isinstance(mark, PathRole) and mark.slides for mark in _marks(info))
        ]
        places = [roots.input(path) for path in named if path]
        return sum(
            max(1, sum(file.is_file() for file in place.iterdir())) if place.is_dir() else 1
            for place in places
        )

    def path_fields(self) -> tuple[str, ...]:
        """Return the names of the arguments that are input paths."""
        return tuple(
            name
            for name, info in self.given.model_fields.items()
            if any(isinstance(mark, PathRole) and mark.role == "input" for mark in _marks(info))
        )

    def parse(self, arguments: Mapping[str, Any]) -> BaseModel:
        """Parse arguments into the input model.

        Raises `InputError`, which names each invalid field.
        """
        unknown = sorted(set(arguments) - set(self.given.model_fields))
        if unknown:
            known = ", ".join(self.given.model_fields) or "none"
            wrong = ", ".join(unknown)
            raise InputError(f"{self.name}: unknown argument {wrong}. Arguments: {known}")
        try:
            return self.given.model_validate(dict(arguments))
        except ValidationError as error:
            raise InputError(f"{self.name}: {explain_validation(error, limit=5)}") from error


def map_texts(value: Any, function: Callable[[str], Any]) -> Any:
    """Apply a function to each string in JSON data, at any depth, except keys."""
    if isinstance(value, str):
        return function(value)
    if isinstance(value, list):
        return [map_texts(item, function) for item in value]
    if isinstance(value, dict):
        return {key: map_texts(item, function) for key, item in value.items()}
    return value


def wanted_device(given: Any) -> str:
    """Return the device requested in a call's arguments, or "" if there is no such argument."""
    device = getattr(given, "device", None)
    return device if isinstance(device, str) else ""


def _has_output(model: type[BaseModel], seen: set[type]) -> bool:
    """Check whether a result model has an output file field, at any depth."""
    seen.add(model)
    for info in model.model_fields.values():
        if any(isinstance(mark, PathRole) and mark.role == "output" for mark in _marks(info)):
            return True
        stack = [info.annotation]
        while stack:
            part = stack.pop()
            stack.extend(getattr(part, "__args__", ()))
            if _is_model(part) and part not in seen and _has_output(part, seen):  # type: ignore[arg-type]
                return True
    return False


def _marks(info: Any) -> Sequence[Any]:
    """Return a field's annotations, including those inside `X | None`."""
    found = list(info.metadata)
    stack = [info.annotation]
    while stack:
        part = stack.pop()
        found.extend(getattr(part, "__metadata__", ()))
        stack.extend(getattr(part, "__args__", ()))
    return found


F = TypeVar("F", bound=Callable[..., BaseModel])


def tool(
    name: str,
    suite: str,
    version: str,
    summary: str,
    resources: Resources = DEFAULT_RESOURCES,
    validity: Validity | None = None,
    license: str | None = None,
    cacheable: bool = True,
    fingerprint: Callable[[Any], str] | None = None,
    memory_mb: Callable[[Any], int] | None = None,
    acts: bool = False,
    title: str = "",
) -> Callable[[F], F]:
    """Declare a function `(given: InputModel, context: ToolContext) -> ResultModel` as a tool.

    `license` is the license of any weights. `cacheable=False` is for tools whose result
    depends on more than their version, arguments and input files. `fingerprint(given)` is a
    string that must change whenever the same arguments would give a different result, for
    example with different weights. `memory_mb(given)` is a call's memory in MiB, if it
    depends on the arguments. `acts` is for tools that do more than write their own files, for
    example start a run. `title` is shown by MCP clients; by default it is the name with
    spaces between words. Raises `TypeError` if the function's annotations are not an input
    model, a context and a result model.
    """

    def attach(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        names = list(inspect.signature(function).parameters)
        given = hints.get(names[0]) if len(names) == 2 else None
        returns = hints.get("return")
        if not (_is_model(given) and _is_model(returns)):
            form = "(given: InputModel, context: ToolContext) -> ResultModel"
            raise TypeError(f"tool {name}: the signature must be {form}")
        spec = ToolSpec(
            name=name,
            suite=suite,
            version=version,
            summary=summary,
            function=function,
            given=given,  # type: ignore[arg-type]
            returns=returns,  # type: ignore[arg-type]
            resources=resources,
            validity=validity,
            license=license,
            cacheable=cacheable,
            fingerprint=fingerprint,
            memory_mb=memory_mb,
            acts=acts,
            source=f"{function.__module__}:{function.__qualname__}",
            title=title,
        )
        setattr(function, ATTRIBUTE, spec)
        return function

    return attach


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)

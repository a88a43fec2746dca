"""The one registry: a tool is a typed function with a description that machines can act on.

```python
class MaskInput(BaseModel):
    slide: InputPath = Field(description="Slide file")

class MaskResult(BaseModel):
    mask: OutputName
    tissue_mm2: float

@tool("tissue_mask", "pathology", "1.0.0", "Find the tissue of a slide.")
def tissue_mask(given: MaskInput, context: ToolContext) -> MaskResult: ...
```

The decorator only attaches a `ToolSpec`; nothing is registered by importing. `load` collects the
tools of the modules that `mcp_servers.catalog` names.
"""

from __future__ import annotations

import inspect
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_type_hints

from pydantic import BaseModel, Field, ValidationError

from mcp_servers.context import ToolContext
from sage.core.errors import Cancelled, FaultError, InputError, SageError
from sage.core.models import Strict

if TYPE_CHECKING:
    from mcp_servers.results_cache import HashIndex, ResultsCache

ATTRIBUTE = "__sage_tool__"


@dataclass(frozen=True)
class PathRole:
    """Marks a field that names a file or folder: one that is read, or one that was written."""

    role: Literal["input", "output"]


InputPath = Annotated[str, PathRole("input"), Field(max_length=1024)]
"""A file or folder to read, relative to a root or absolute inside one."""
OutputName = Annotated[str, PathRole("output"), Field(max_length=1024)]
"""A file that the tool wrote, relative to the output folder."""


class Card(Strict):
    """Frozen description."""


class Resources(Card):
    """What one call needs: MiB (`memory_note`: with other arguments), seconds on one core."""

    cpu: int = Field(default=1, ge=1)
    memory_mb: int = Field(default=512, ge=16)
    memory_note: str = ""
    gpu: Literal["none", "optional", "required"] = "none"
    seconds_per_item: float | None = Field(default=None, ge=0)


DEFAULT_RESOURCES = Resources()


class Validity(Card):
    """Where a tool's numbers may be believed.

    `mpp` is the range of pixel sizes in µm. `training_data` names what a learned method saw,
    `tcga_overlap` whether TCGA was in it. `accuracy` states measured figures, with their data.
    """

    stain: str | None = None
    mpp: tuple[float, float] | None = None
    organ: str | None = None
    training_data: str | None = None
    tcga_overlap: str | None = None
    known_failures: tuple[str, ...] = ()
    accuracy: str | None = None


class Output(Card):
    """A file that a tool wrote; `name` is relative to the output folder."""

    name: str
    bytes: int
    sha256: str
    mime: str


class Provenance(Card):
    """Where a result comes from. `inputs` maps each file or folder read to its SHA-256."""

    tool: str
    version: str
    arguments: dict[str, Any]
    inputs: dict[str, str]
    seconds: float
    cached: bool = False
    device: str = "cpu"


class ToolRun(Card):
    """A tool's result as plain data, the files it wrote, and where it comes from."""

    result: dict[str, Any]
    outputs: tuple[Output, ...] = ()
    provenance: Provenance

    @property
    def cached(self) -> bool:
        """True when the result was found, not computed."""
        return self.provenance.cached


@dataclass(frozen=True)
class ToolSpec:
    """One entry of the registry."""

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
    source: str = ""

    @property
    def input_schema(self) -> dict[str, Any]:
        """JSON schema of the arguments."""
        return self.given.model_json_schema()

    @property
    def output_schema(self) -> dict[str, Any]:
        """JSON schema of the result."""
        return self.returns.model_json_schema(mode="serialization")

    def needs(self, given: BaseModel) -> Resources:
        """What a call with these arguments needs."""
        own = {} if self.memory_mb is None else {"memory_mb": self.memory_mb(given)}
        return self.resources.model_copy(update=own)

    def path_fields(self) -> tuple[str, ...]:
        """Names of the arguments that are input paths."""
        return tuple(
            name
            for name, info in self.given.model_fields.items()
            if any(isinstance(one, PathRole) and one.role == "input" for one in _marks(info))
        )

    def parse(self, arguments: Mapping[str, Any]) -> BaseModel:
        """Arguments as the input model; raises `InputError` that names each wrong field."""
        unknown = sorted(set(arguments) - set(self.given.model_fields))
        if unknown:
            known = ", ".join(self.given.model_fields) or "none"
            wrong = ", ".join(unknown)
            raise InputError(f"{self.name}: unknown argument {wrong}; it takes: {known}")
        try:
            return self.given.model_validate(dict(arguments))
        except ValidationError as error:
            raise InputError(f"{self.name}: {explain(error)}") from error


def _marks(info: Any) -> Sequence[Any]:
    """The annotations of a field, also those inside `X | None`."""
    found = list(info.metadata)
    stack = [info.annotation]
    while stack:
        one = stack.pop()
        found.extend(getattr(one, "__metadata__", ()))
        stack.extend(getattr(one, "__args__", ()))
    return found


def explain(error: ValidationError, limit: int = 5) -> str:
    """A pydantic error in one line: each wrong field with what is wrong."""
    parts = []
    for one in error.errors(include_url=False)[:limit]:
        where = ".".join(str(step) for step in one["loc"]) or "input"
        parts.append(f'"{where}": {one["msg"]}')
    return "; ".join(parts)


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
) -> Callable[[F], F]:
    """Describe a function `(given: InputModel, context: ToolContext) -> ResultModel` as a tool.

    `license` is the license of any weights. `cacheable=False` is for tools whose answer depends
    on more than their version, arguments and input files. `fingerprint(given)` is a string that
    must change when the same arguments would be answered differently, say which weights are here.
    `memory_mb(given)` is the memory of a call in MiB, where that depends on the arguments.

    Raises
    ------
    TypeError
        If the function's annotations are not an input model, a context and a result model.
    """

    def attach(function: F) -> F:
        hints = get_type_hints(function, include_extras=True)
        names = list(inspect.signature(function).parameters)
        given = hints.get(names[0]) if len(names) == 2 else None
        returns = hints.get("return")
        if not (_is_model(given) and _is_model(returns)):
            form = "(given: InputModel, context: ToolContext) -> ResultModel"
            raise TypeError(f"tool {name}: write it as {form}")
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
            source=f"{function.__module__}:{function.__qualname__}",
        )
        setattr(function, ATTRIBUTE, spec)
        return function

    return attach


def _is_model(candidate: Any) -> bool:
    return isinstance(candidate, type) and issubclass(candidate, BaseModel)


@dataclass
class Registry:
    """A set of tools by name."""

    tools: dict[str, ToolSpec] = field(default_factory=dict)
    cache: ResultsCache | None = None

    def add(self, spec: ToolSpec) -> None:
        """Register a tool; raises `InputError` when another tool has its name."""
        held = self.tools.get(spec.name)
        if held is not None and held is not spec:
            raise InputError(
                f'two tools are called "{spec.name}": {held.source} and {spec.source}; rename one'
            )
        self.tools[spec.name] = spec

    def get(self, name: str) -> ToolSpec:
        """The tool called `name`; raises `InputError` that suggests a near name."""
        if name in self.tools:
            return self.tools[name]
        import difflib

        near = " or ".join(difflib.get_close_matches(name, self.tools, n=3))
        hint = f"; did you mean {near}?" if near else "; see `sage tools list`"
        raise InputError(f'no tool is called "{name}"{hint}')

    def all(self) -> tuple[ToolSpec, ...]:
        """Every tool, by suite and name."""
        return tuple(sorted(self.tools.values(), key=lambda one: (one.suite, one.name)))

    def __iter__(self) -> Iterator[ToolSpec]:
        """Every tool, by suite and name."""
        return iter(self.all())

    def describe(self, names: Collection[str] | None = None) -> str:
        """The tools (or those named) as text for a prompt: signature, units, limits, failures."""
        from mcp_servers.describe import describe_tool

        chosen = [spec for spec in self.all() if names is None or spec.name in names]
        return "\n\n".join(describe_tool(spec) for spec in chosen)

    def run(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolRun:
        """Run a tool here, in this process, or find its result in the cache.

        Raises
        ------
        InputError
            Unknown tool, bad arguments, or a file the tool refuses.
        Cancelled
            The caller gave up.
        FaultError
            The tool failed for a reason outside its input.
        """
        spec = self.get(name)
        given = spec.parse(arguments)
        cache = self.cache if spec.cacheable else None
        if cache is not None and (found := cache.find(spec, given, context)) is not None:
            return found
        run = execute(spec, given, context, self.cache.index if self.cache else None)
        if cache is not None:
            cache.store(spec, given, context, run)
        return run


def execute(
    spec: ToolSpec, given: BaseModel, context: ToolContext, index: HashIndex | None = None
) -> ToolRun:
    """Run a tool's function and gather result, outputs and provenance."""
    from mcp_servers.describe import beyond_card
    from mcp_servers.results_cache import describe_output, hash_input

    context.check_cancelled()
    started = time.monotonic()
    try:
        answer = spec.function(given, context)
    except (SageError, Cancelled):
        raise
    except Exception as error:
        raise FaultError(f"{spec.name} failed: {type(error).__name__}: {error}") from error
    result = json.loads(answer.model_dump_json())  # as every caller will see it: NaN is null
    try:
        spec.returns.model_validate(result)
    except ValidationError as error:
        raise FaultError(
            f"{spec.name} {spec.version} returned a result outside its schema: {explain(error)}"
        ) from error
    return ToolRun(
        result=result | beyond_card(spec, result),
        outputs=tuple(describe_output(context.roots.output, one) for one in context.written),
        provenance=Provenance(
            tool=spec.name,
            version=spec.version,
            arguments=given.model_dump(mode="json"),
            inputs={str(path): hash_input(path, index) for path in context.read},
            seconds=round(time.monotonic() - started, 4),
            device=context.device,
        ),
    )


def collect(module: Any) -> list[ToolSpec]:
    """The tools that a module defines itself (not those it imports)."""
    found = []
    for value in vars(module).values():
        spec = getattr(value, ATTRIBUTE, None)
        if isinstance(spec, ToolSpec) and getattr(value, "__module__", None) == module.__name__:
            found.append(spec)
    return found


def load(
    suite: str = "all",
    *,
    tool_folders: Sequence[str | Path] = (),
    cache: ResultsCache | None = None,
) -> Registry:
    """The registry of one suite ("pathology", "oncology", "knowledge") or of all.

    `tool_folders` are folders of the user's own tools (promoted functions). They are code and run
    as such, so they are read only from folders that were named explicitly; never searched for.

    Raises
    ------
    InputError
        If there is no such suite, or a tool folder or a file in it cannot be used.
    """
    from mcp_servers import catalog

    registry = Registry(cache=cache)
    for module in catalog.modules(suite):
        for spec in collect(module):
            registry.add(spec)
    for folder in tool_folders:
        for module in catalog.user_modules(folder):
            for spec in collect(module):
                registry.add(spec)
    return registry

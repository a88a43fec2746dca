"""Registry of tools: typed functions with machine-readable descriptions.

```python
class MaskInput(BaseModel):
    slide: InputPath = Field(description="Slide file")

class MaskResult(BaseModel):
    mask: OutputName
    tissue_mm2: float

@tool("tissue_mask", "pathology", "1.0.0", "Find the tissue of a slide.")
def tissue_mask(given: MaskInput, context: ToolContext) -> MaskResult: ...
```

The decorator only attaches a `ToolSpec`; importing a module registers nothing. `load`
collects tools from the modules listed in `mcp_servers.catalog`.
"""

from __future__ import annotations

import difflib
import json
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from mcp_servers import catalog
from mcp_servers.context import ToolContext
from mcp_servers.describe import check_card, describe_tool
from mcp_servers.results_cache import HashIndex, ResultsCache, describe_output, hash_input
from mcp_servers.spec import ATTRIBUTE, Provenance, ToolRun, ToolSpec
from sage.core.errors import Cancelled, FaultError, InputError, SageError, explain_validation
from sage.core.extras import explain_absence


@dataclass
class Registry:
    """A collection of tools by name."""

    tools: dict[str, ToolSpec] = field(default_factory=dict)
    cache: ResultsCache | None = None

    def add(self, spec: ToolSpec) -> None:
        """Register a tool; raises `InputError` if another tool has its name."""
        held = self.tools.get(spec.name)
        if held is not None and held is not spec:
            raise InputError(
                f'two tools are named "{spec.name}": {held.source}, {spec.source}; rename one '
                "of them"
            )
        self.tools[spec.name] = spec

    def get(self, name: str) -> ToolSpec:
        """Return the tool called `name`.

        Raises `InputError` with a suggestion if the name is unknown.
        """
        if name in self.tools:
            return self.tools[name]

        near = " or ".join(difflib.get_close_matches(name, self.tools, n=3))
        hint = f"; did you mean {near}?" if near else "; see `sage tools list`"
        raise InputError(f'unknown tool "{name}"{hint}')

    def all(self) -> tuple[ToolSpec, ...]:
        """Return all tools, sorted by suite and name."""
        return tuple(sorted(self.tools.values(), key=lambda tool: (tool.suite, tool.name)))

    def __iter__(self) -> Iterator[ToolSpec]:
        return iter(self.all())

    def describe(self, names: Collection[str] | None = None) -> str:
        """Describe all tools, or only `names`, for a prompt: signature, units, limits, failures."""
        chosen = [spec for spec in self.all() if names is None or spec.name in names]
        return "\n\n".join(describe_tool(spec) for spec in chosen)

    def run(self, name: str, arguments: Mapping[str, Any], context: ToolContext) -> ToolRun:
        """Run a tool in this process, or retrieve its result from the cache.

        Raises
        ------
        InputError
            If the tool is unknown, the arguments are invalid, or the tool rejects a file.
        Cancelled
            If the caller canceled the run.
        FaultError
            If the tool failed for a reason other than its input.
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
    """Run a tool's function and collect its result, outputs and provenance.

    Raises `SageError` or `Cancelled` if the tool raises them, and `FaultError` if the tool
    fails for any other reason or its result does not match its schema.
    """
    context.check_cancelled()
    started = time.monotonic()
    begun = context.roots.output.exists()
    try:
        answer = spec.function(given, context)
    except InputError:
        if not begun:  # refused: no folder is left of it
            shutil.rmtree(context.roots.output, ignore_errors=True)
        raise
    except (SageError, Cancelled):
        raise
    except Exception as error:
        if isinstance(error, ModuleNotFoundError) and (known := explain_absence(error)):
            raise known from error
        raise FaultError(f"{spec.name} failed: {type(error).__name__}: {error}") from error
    result = json.loads(answer.model_dump_json())  # as every caller will see it: NaN is null
    try:
        spec.returns.model_validate(result)
    except ValidationError as error:
        reason = explain_validation(error, limit=5)
        raise FaultError(
            f"{spec.name} {spec.version} returned a result that does not match its schema: {reason}"
        ) from error
    return ToolRun(
        result=result | check_card(spec, result),
        outputs=tuple(describe_output(context.roots.output, name) for name in context.written),
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
    """Return the tools from a module's `list_tools` function, or else those defined in it."""
    if hasattr(module, "list_tools"):
        return list(module.list_tools())
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
    """Load the registry of one suite ("pathology", "oncology", "knowledge") or of all suites.

    `tool_folders` are folders with the user's own tools (promoted functions). Their code is
    executed, so only explicitly named folders are loaded; there is no automatic discovery.
    Raises `InputError` if the suite does not exist, or if a tool folder or a file in it
    cannot be used.
    """
    registry = Registry(cache=cache)
    for module in catalog.modules(suite):
        for spec in collect(module):
            registry.add(spec)
    for folder in tool_folders:
        for module in catalog.user_modules(folder):
            for spec in collect(module):
                registry.add(spec)
    return registry

"""Imaging variables missing from a cohort, computed by registered tools on its slides."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.core.files import write_text
from sage.core.models import Strict

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort


class Extracted(Strict):
    """Status of each wanted variable (found, extracted or missing), and tables for `features`."""

    found: tuple[str, ...]
    missing: tuple[str, ...]
    provenance: tuple[dict[str, Any], ...]
    features: tuple[str, ...]


def extract(
    cohort: Cohort,
    wanted: tuple[str, ...],
    out: Path,
    progress: Callable[[str, int, int], None],
) -> Extracted:
    """Find the `wanted` variables, run tools that compute missing ones, and keep their tables.

    A variable `imaging:tls_density` is written as column `density` of `tls.csv`, to which
    `--features` gives the same name.

    Parameters
    ----------
    progress : called with the tool's name, the number of finished slides, and the total

    Raises
    ------
    InputError
        If `out` is not empty, or the cohort has no slides to compute a missing variable from.
    """
    from mcp_servers import registry as tools
    from mcp_servers.context import ToolContext
    from mcp_servers.roots import Roots
    from sage_programs.features import resolve_cohort

    if out.exists() and any(out.iterdir()):
        raise InputError(f"--out: {out} is not empty; choose another folder")
    registry = tools.load("pathology")
    context = ToolContext(Roots.resolve([cohort.root], out / "tools"))
    extended, plan, provenances = resolve_cohort(
        cohort,
        wanted,
        registry,
        lambda name, arguments: registry.run(name, arguments, context),
        out / "extracted",
        on_event=lambda _, event: progress(event["variable"], event["done"], event["total"]),
    )
    written = []
    for extraction in plan.extract:
        name = extraction.variable.split(":", 1)[1]
        stem, _, column = name.partition("_")
        values = extended.column(extraction.variable).dropna()
        rows = [f"patient,{column or name}", *(f"{who},{value!r}" for who, value in values.items())]
        path = out / f"{stem}.csv"
        write_text(path, "\n".join(rows) + "\n")
        written.append(str(path))
    return Extracted(
        found=plan.found,
        missing=plan.missing,
        provenance=tuple(provenance.model_dump(mode="json") for provenance in provenances),
        features=tuple(written),
    )

"""New features, computed by registered tools on each patient's slides and stored as tables.

The result is a copy of the cohort with the new variables; the original folder is not
modified. It is made before a contract is frozen, so that the new table is hashed with the
rest.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from agents.core.base import View
from sage.core.errors import InputError, SageError
from sage.core.files import write_text
from sage.core.hashes import hash_file, hash_text

if TYPE_CHECKING:
    from mcp_servers.registry import Registry
    from mcp_servers.spec import ToolRun
    from validation.cohort.cohort import Cohort
    from validation.core.dictionary import DataDictionary

RunTool = Callable[[str, dict[str, Any]], "ToolRun"]
_NUMBERS = re.compile(r"\b(int|float)\b")


class FeatureProvenance(View):
    """A variable's provenance: tool and version, slides and patients, and hashes; never a row.

    `inputs_sha256` covers the content hashes of all slides in order, `table_sha256` the
    table.
    """

    variable: str
    tool: str
    version: str
    field: str
    patients: int
    slides: int
    failed: int
    without_value: int
    reasons: tuple[str, ...]
    inputs_sha256: str
    table: str
    table_sha256: str


class Extraction(View):
    """Instruction to compute `variable` for each slide as the field `field` of the tool `tool`."""

    variable: str
    tool: str
    field: str


class DataPlan(View):
    """Plan for each wanted variable: found in the cohort, to be extracted, or not available."""

    found: tuple[str, ...] = ()
    extract: tuple[Extraction, ...] = ()
    missing: tuple[str, ...] = ()


def plan_extraction(
    wanted: Sequence[str], known: DataDictionary, registry: Registry, *, slides: int
) -> DataPlan:
    """Plan to use the cohort's variables, and to extract missing imaging variables with tools."""
    found, extract, missing = list[str](), list[Extraction](), list[str]()
    for key in dict.fromkeys(wanted):
        if known.has_variable(key):
            found.append(key)
        elif slides and key.startswith("imaging:") and (best := _find_tool(key, registry)):
            extract.append(best)
        else:
            missing.append(key)
    return DataPlan(found=tuple(found), extract=tuple(extract), missing=tuple(missing))


def _find_tool(key: str, registry: Registry) -> Extraction | None:
    """Find the file-based tool with a numeric field whose names contain the variable's words."""
    words = _words(key.split(":", 1)[1])
    fits = [
        (len(_words(field) - words), spec.name, field)
        for spec in registry
        for field, info in spec.returns.model_fields.items()
        if spec.path_fields()
        and _NUMBERS.search(str(info.annotation))
        and "[" not in str(info.annotation)
        and words <= _words(field) | _words(spec.name)
        and words & _words(field)
    ]
    if not fits:
        return None
    _, tool, field = min(fits)
    return Extraction(variable=key, tool=tool, field=field)


def _words(name: str) -> set[str]:
    words = {word for word in re.split(r"[^a-z0-9]+", name.lower()) if word}
    # A count per area is a density, whatever the field is called.
    return (words - {"per", "mm2"}) | {"density"} if {"per", "mm2"} <= words else words


def slides_of(cohort: Cohort) -> dict[str, list[Path]]:
    """Find each patient's slide files under the cohort's root, omitting patients without slides."""
    from validation.cohort.ids import patient_of

    spec, found = cohort.spec.slides, dict[str, list[Path]]()
    if spec is None:
        return found
    folder = (cohort.root / spec.folder).resolve()
    named: list[tuple[str | None, Path]] = []
    if spec.table is not None and spec.file_column is not None:
        table = cohort.tables[spec.table]
        column = table.column(spec.file_column, "slides.file_column")
        named = [
            (str(who), folder / str(name)) for who, name in zip(table.patient, column, strict=True)
        ]
    elif folder.is_dir():
        ids = cohort.spec.patient.ids
        named = [(patient_of(path.stem, ids), path) for path in sorted(folder.glob(spec.pattern))]
    known = set(cohort.patients)
    for who, path in named:
        inside = path.resolve().is_relative_to(cohort.root)
        if who is not None and who in known and inside and path.is_file():
            found.setdefault(who, []).append(path)
    return found


def resolve_cohort(
    cohort: Cohort,
    wanted: Sequence[str],
    registry: Registry,
    run_tool: RunTool,
    folder: Path,
    *,
    on_event: Callable[[str, dict[str, Any]], None] = lambda *_: None,
) -> tuple[Cohort, DataPlan, tuple[FeatureProvenance, ...]]:
    """Find the `wanted` variables, and extract those that a tool can compute.

    Call this before a contract is frozen. The plan's `missing` variables are unavailable. If
    nothing was extracted, the cohort is returned unchanged. For errors, see
    `extract_features`.
    """
    slides = sum(len(paths) for paths in slides_of(cohort).values())
    plan = plan_extraction(wanted, cohort.dictionary(), registry, slides=slides)
    extended, found = extract_features(cohort, plan, registry, run_tool, folder, on_event=on_event)
    return extended, plan, found


def extract_features(
    cohort: Cohort,
    plan: DataPlan,
    registry: Registry,
    run_tool: RunTool,
    folder: Path,
    *,
    on_event: Callable[[str, dict[str, Any]], None] = lambda *_: None,
) -> tuple[Cohort, tuple[FeatureProvenance, ...]]:
    """Compute the variables in `plan`, and return the cohort with them.

    Raises
    ------
    InputError
        If the cohort has no slides, or a tool gives no value for any patient.
    """
    from validation.cohort.cohort import Cohort as Made
    from validation.cohort.model import TableSpec, VariableSpec

    if not plan.extract:
        return cohort, ()
    slides = slides_of(cohort)
    if not slides:
        raise InputError(f'cohort "{cohort.id}" has no slide files to extract features from')
    root = folder / "cohort"
    for path in cohort.files():
        _link(path, root / path.relative_to(cohort.root))
    tables, variables = dict(cohort.spec.tables), dict(cohort.spec.variables)
    found = []
    for extraction in plan.extract:
        name = extraction.variable.split(":", 1)[1]
        said = _extract(extraction, name, slides, registry, run_tool, root, on_event)
        found.append(said)
        tables[f"feature_{name}"] = TableSpec(
            file=said.table, key="patient", source=f"{said.tool} {said.version}"
        )
        variables[name] = VariableSpec(
            table=f"feature_{name}", column=name, kind="continuous", modality="imaging",
            label=name.replace("_", " "), note=f"computed by {said.tool} {said.version}",
        )  # fmt: skip
    spec = cohort.spec.model_copy(
        update={"tables": tables, "variables": variables, "slides": None, "root": None}
    )
    text = json.dumps([provenance.model_dump(mode="json") for provenance in found], indent=2) + "\n"
    write_text(folder / "provenance.json", text)
    return Made(spec, root), tuple(found)


def _extract(
    extraction: Extraction,
    name: str,
    slides: dict[str, list[Path]],
    registry: Registry,
    run_tool: RunTool,
    root: Path,
    on_event: Callable[[str, dict[str, Any]], None],
) -> FeatureProvenance:
    """Run the tool on every slide; a patient's value is the mean over the patient's slides."""
    spec = registry.get(extraction.tool)
    argument = spec.path_fields()[0]
    rows, hashes, reasons = ["patient," + name], list[str](), dict[str, int]()
    done = failed = without = 0
    total = sum(len(paths) for paths in slides.values())
    for who, paths in sorted(slides.items()):
        values = []
        for path in paths:
            try:
                ended = run_tool(extraction.tool, {argument: str(path)})
            except SageError as wrong:
                failed += 1
                reason = str(wrong).replace(str(path), "(slide)").replace(path.name, "(slide)")
                reasons[reason[:120]] = reasons.get(reason[:120], 0) + 1
            else:
                hashes += sorted(ended.provenance.inputs.values())
                value = ended.result.get(extraction.field)
                values += [float(value)] if value is not None else []
            done += 1
            on_event("feature", {"variable": extraction.variable, "done": done, "total": total})
        if values:
            rows.append(f"{who},{fmean(values)!r}")
        else:
            without += 1
    if len(rows) == 1:
        why = "; ".join(reasons) or f"{extraction.field} is empty for all slides"
        raise InputError(
            f"{extraction.tool} returned no {extraction.variable} for any patient: {why}"
        )
    table = root / "features" / f"{name}.csv"
    write_text(table, "\n".join(rows) + "\n")
    return FeatureProvenance(
        variable=extraction.variable,
        tool=extraction.tool,
        version=spec.version,
        field=extraction.field,
        patients=len(rows) - 1,
        slides=total,
        failed=failed,
        without_value=without,
        reasons=tuple(f"{count} × {reason}" for reason, count in sorted(reasons.items())[:5]),
        inputs_sha256=hash_text("\n".join(hashes)),
        table=table.relative_to(root).as_posix(),
        table_sha256=hash_file(table),
    )


def _link(source: Path, target: Path) -> None:
    """Hard-link a file under another root, or copy it if the file system does not allow links."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)

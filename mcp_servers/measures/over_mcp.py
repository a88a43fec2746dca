"""The `measure_cohort` tool, which measures an entire cohort through `sage slides measure`."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, Field

from mcp_servers.context import ToolContext
from mcp_servers.knowledge.runs import Drive, parse_json
from mcp_servers.measures.maps import list_maps
from mcp_servers.pathology.common import SUITE, Given
from mcp_servers.spec import ATTRIBUTE, InputPath, OutputName, Resources, SlidePath, ToolSpec, tool
from mcp_servers.workers.cohort import find_slides
from sage.core.errors import InputError

EVERY_SECONDS = 1.0
"""Seconds between checks of the number of slides done."""
LISTED = 300
ROWS = ".rows"
"""Folder for patient-level rows, which tools can read but clients cannot."""


class MeasureCohortInput(Given):
    """Slides or existing maps of a cohort, and the measurements to compute."""

    cohort: str = Field(
        default="-",
        max_length=1024,
        description='Cohort as listed by list_cohorts, or "-" for none',
    )
    slides: SlidePath | None = Field(default=None, description="Folder of slides")
    maps: InputPath | None = Field(
        default=None, description="Folder of existing maps, instead of slides"
    )
    formulas: list[str] = Field(
        default_factory=list,
        max_length=2000,
        description="Measurements, e.g. pooled(density(cells.lymphoid, "
        "within=margin(regions.tumor, 100, 100))); default: those of `suite`",
    )
    suite: Literal["standard", "full"] = "standard"
    mpp: float | None = Field(
        default=None, gt=0, le=100, description="µm per pixel of slides that do not state it"
    )
    tumor_regions: InputPath | None = Field(
        default=None,
        description="Folder with the tumor outlines of each slide (NAME.geojson); without these "
        "or a model, measurements in tumor have no value",
    )
    model: InputPath | None = Field(default=None, description="Model of patch_train, for tumor")
    known_at: Literal["baseline", "unknown"] = Field(
        default="baseline",
        description="Use baseline if the slides were taken before follow-up began",
    )


class MeasuredVariable(BaseModel):
    """A measurement as a cohort variable."""

    key: str = Field(description="Name of the variable in logrank, cox ... with `tables` = [table]")
    sentence: str
    unit: str


class MeasureCohortResult(BaseModel):
    """The cohort's tables, and the failures."""

    table: OutputName = Field(
        description="Pass this in `tables` to the oncology tools; it contains rows of patients, "
        "so it cannot be read as a resource"
    )
    validity: OutputName = Field(
        description="Reasons for missing values, by patient; it cannot be read as a resource either"
    )
    columns: OutputName = Field(description="Sentence, formula and unit of each variable")
    declaration: OutputName = Field(description="The same variables as lines for cohort.toml")
    patients: int
    slides: int
    measurements: int
    variables: list[MeasuredVariable] = Field(
        description=f"The first {LISTED}; all are in `columns`"
    )
    failures: dict[str, str] = Field(description="Failed slides, with the reason")
    withheld: dict[str, str] = Field(description="Not analyzed on some slides, by reason")


def measure_tool(drive: Drive, cache_folder: str | None) -> ToolSpec:
    """Build `measure_cohort` from a driver for `sage`; finished slides go to the cache."""

    @tool(
        "measure_cohort",
        SUITE,
        "1.1.0",
        "Measure all slides of a cohort: makes maps of cells, TLS and given tumor, computes "
        "measurements on them, and writes one variable per measurement and patient. Takes "
        "minutes per slide. After a cancellation, call again with the same arguments: finished "
        "slides are kept.",
        Resources(cpu=1, memory_mb=2048),
        cacheable=False,
        title="Measure the slides of a cohort",
    )
    def measure_cohort(given: MeasureCohortInput, context: ToolContext) -> MeasureCohortResult:
        words, source, cohort = _words(given, context)
        out = context.roots.write_path(ROWS).resolve()
        words += ["--out", str(out)]
        words += ["--cache", cache_folder] if cache_folder is not None else []
        answer = drive([*words, "--", cohort], _watch(out, _count(source, given), context))
        report = parse_json(answer, allowed=(0, 1))  # 1: some slides failed
        for name in (f"{ROWS}/measured.csv", f"{ROWS}/validity.csv"):
            context.output(name)
        for name in ("measured.columns.json", "measured.toml"):
            with context.writing(name) as path:
                shutil.copyfile(out / name, path)
        about = json.loads((out / "measured.columns.json").read_text(encoding="utf-8"))
        listed = list(about.items())[:LISTED]
        return MeasureCohortResult(
            table=f"{ROWS}/measured.csv",
            validity=f"{ROWS}/validity.csv",
            columns="measured.columns.json",
            declaration="measured.toml",
            patients=report["patients"],
            slides=report["slides"],
            measurements=report["measurements"],
            variables=[
                MeasuredVariable(key=f"imaging:measured_{k}", sentence=v["label"], unit=v["unit"])
                for k, v in listed
            ],
            failures=dict(list(report["failures"].items())[:LISTED]),
            withheld=report["withheld"],
        )

    found: ToolSpec = getattr(measure_cohort, ATTRIBUTE)
    return found


def _words(given: MeasureCohortInput, context: ToolContext) -> tuple[list[str], Path, str]:
    """Return the command, the folder that it reads, and the cohort; all paths are under roots."""
    from validation.cohort.builtin import NAMES

    if (given.slides is None) == (given.maps is None):
        raise InputError("slides or maps are required")
    source = context.roots.input(given.slides or given.maps or "", "folder")
    cohort = given.cohort
    if cohort not in ("-", *NAMES):
        cohort = str(context.roots.input(cohort))
    words = ["slides", "measure", "--json", "--known-at", given.known_at]
    words += ["--slides" if given.slides else "--maps", str(source)]
    if given.formulas:
        with context.writing("definitions.txt") as path:
            path.write_text("\n".join(_one_line(text) for text in given.formulas) + "\n")
        words += ["--define", str(context.output("definitions.txt"))]
    else:
        words += ["--suite", given.suite]
    words += [f"--mpp={given.mpp}"] if given.mpp is not None else []
    for name in ("tumor_regions", "model"):
        path = getattr(given, name)
        words += ["--set", f"{name}={context.input(path)}"] if path is not None else []
    return words, source, cohort


def _one_line(text: str) -> str:
    if "\n" in text or text.lstrip().startswith("#"):
        raise InputError(f"formulas: each must be on one line, got {text[:60]!r}")
    return text


def _count(source: Path, given: MeasureCohortInput) -> int:
    return len(find_slides(source)[0]) if given.slides else len(list_maps(source))


def _watch(out: Path, total: int, context: ToolContext) -> Callable[[], bool]:
    """Report progress from the written records; return True if the caller cancelled."""
    last = [0.0]

    def stop() -> bool:
        if time.monotonic() - last[0] > EVERY_SECONDS:
            made = sum(1 for _ in out.glob("slide_maps/*/run.json"))
            values = sum(1 for _ in out.glob("measure_maps/*/run.json"))
            stages = 2 if (out / "slide_maps").is_dir() else 1
            context.on_progress(
                min(0.99, (made + values) / (stages * total)),
                f"{values} of {total} slides measured" if values else f"{made} of {total} mapped",
            )
            last[0] = time.monotonic()
        return context.cancelled()

    return stop

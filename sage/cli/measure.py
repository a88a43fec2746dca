"""`sage slides measure`: measurements over the slides of a cohort, as variables of its patients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol

import typer

from sage.cli.options import AsJson, Cache, Memory, Mpp, NoCache, Pattern, Workers
from sage.core.printable import count_noun

if TYPE_CHECKING:
    from mcp_servers.measures.cohort import Measured
    from mcp_servers.measures.language import Measurement
    from mcp_servers.workers.cohort import Item, Outcome


SuiteName = Literal["standard", "full"]
"""Measurements that are made by rule."""
Known = Literal["baseline", "unknown"]
"""Time at which the slides were available."""


class ByProgram(Protocol):
    """A measurement that something else than the language computes."""

    @property
    def measurement(self) -> Measurement:
        """The measurement."""

    def compute(
        self, items: list[Item], out: Path, on_outcome: Callable[[Outcome, int, int], None]
    ) -> list[Outcome]:
        """Write the values of each slide where `write_variables` finds them, below `out`."""


def measure(
    cohort: Annotated[
        str, typer.Argument(metavar="COHORT", help="Cohort folder or name, or - for none.")
    ],
    slides: Annotated[
        Path | None, typer.Option(help="Folder of slides, or one slide: maps are made of them.")
    ] = None,
    maps: Annotated[
        Path | None, typer.Option(help="Folder of ready maps (`sage exchange maps import`).")
    ] = None,
    define: Annotated[Path | None, typer.Option(help="File with a formula per line.")] = None,
    suite: Annotated[
        SuiteName | None, typer.Option(help="Measurements made by rule from what the maps hold.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for states, maps and tables.")] = Path(
        "measured"
    ),
    pattern: Pattern = None,
    mpp: Mpp = None,
    known_at: Annotated[
        Known, typer.Option(help="baseline: the slides were taken before follow-up began.")
    ] = "baseline",
    workers: Workers = None,
    memory: Memory = None,
    cache: Cache = None,
    no_cache: NoCache = False,
    as_json: AsJson = False,
) -> None:
    """Measure the slides or maps of a cohort and write one variable per measurement and patient.

    Run the same line again after an interruption: finished slides are not measured again. A slide
    that fails is named, and counts as missing.

    Example:

        sage slides measure my-cohort --slides slides --suite standard --out measured --workers 2

        sage slides measure my-cohort --maps maps --define measurements.txt --out measured

        sage slides measure - --slides slide.svs --define measurements.txt --out one-slide
    """
    from sage.core.errors import InputError

    if (slides is None) == (maps is None):
        raise InputError("give --slides or --maps")
    if (define is None) == (suite is None):
        raise InputError("give --define FILE or --suite standard")
    found, _, conflicts = measure_cohort(
        cohort, slides, maps, out, define=define, suite=suite, pattern=pattern, mpp=mpp,
        known_at=known_at, workers=workers, memory=memory, cache=cache, no_cache=no_cache,
        quiet=as_json,
    )  # fmt: skip
    report_measured(found, conflicts, {}, as_json=as_json)


def measure_cohort(
    cohort: str,
    slides: Path | None,
    maps: Path | None,
    out: Path,
    *,
    tool: str = "slide_maps",
    suite_of_tool: str = "pathology",
    arguments: Mapping[str, Any] | None = None,
    define: Path | None = None,
    suite: SuiteName | None = None,
    program: ByProgram | None = None,
    pattern: str | None = None,
    mpp: float | None = None,
    known_at: Known = "baseline",
    workers: str | None = None,
    memory: int | None = None,
    cache: Path | None = None,
    no_cache: bool = False,
    quiet: bool = False,
) -> tuple[Measured, list[Item], dict[str, str]]:
    """Measure ready maps, or the maps that a tool makes of slides, and write the variables.

    `tool` writes `maps/` and is of the suite `suite_of_tool`; it gets `arguments` with each slide.
    `program` comes in place of `define` and `suite`.
    Returned with the variables: the measured slides, and those whose pixel size contradicts `mpp`.
    """
    from mcp_servers.measures import cohort as over
    from mcp_servers.measures.formula import read_definitions
    from mcp_servers.roots import Roots
    from mcp_servers.workers.choose import open_workers
    from mcp_servers.workers.jobs import Recipe
    from sage.cli.cohort import load_named
    from sage.cli.tools_support import stage_bars
    from sage.core.errors import InputError

    measurements = read_definitions(define) if define is not None else []
    if program is not None:
        measurements = [program.measurement]
    held = None if cohort == "-" else load_named(cohort)
    source = slides if slides is not None else maps
    assert source is not None
    if not source.exists():
        raise InputError(f'"{source}" does not exist')
    folder = source.resolve() if source.is_dir() else source.resolve().parent
    items, broken = _items(slides, maps, pattern, held)
    _check_patients(items, held)
    roots = Roots.resolve([folder], out)
    keep = None if no_cache else str(cache or roots.output / ".cache")
    conflicts: dict[str, str] = {}
    failures = {name: (name, reason) for name, reason in broken.items()}
    with (
        open_workers(workers, Recipe(suite_of_tool, (), keep), memory_mb=memory) as pool,
        stage_bars(quiet=quiet) as progress,
    ):
        if slides is not None:
            own = {} if mpp is None else {"mpp": mpp}
            items, outcomes = over.make_maps(
                pool, items, roots, own | dict(arguments or {}), progress, tool
            )
            failures |= {
                outcome.item.name: (outcome.item.patient, str(outcome.error))
                for outcome in outcomes
                if outcome.error is not None
            }
            conflicts = _conflicts(items) if mpp is not None else {}
        if not measurements and items:
            measurements = over.suite_for(items, suite or "standard")
        if program is None:
            values = over.compute_values(pool, items, measurements, roots, progress)
        else:
            values = program.compute(items, roots.output, partial(progress, "values"))
    declared = held is not None and held.spec.slides is not None and held.spec.slides.known_at
    found = over.write_variables(
        measurements, values, failures, roots.output, None if declared else known_at
    )
    return found, items, conflicts


def _items(
    slides: Path | None, maps: Path | None, pattern: str | None, held: Any
) -> tuple[list[Item], dict[str, str]]:
    from mcp_servers.measures.cohort import items_with_patients, map_items
    from mcp_servers.workers.cohort import find_slides

    if maps is not None:
        return map_items(maps.resolve())
    assert slides is not None
    found = [slides.resolve()] if slides.is_file() else find_slides(slides.resolve(), pattern)
    return items_with_patients(found, held), {}


def _check_patients(items: list[Item], held: Any) -> None:
    """Refuse slides of which none is of a patient of the cohort, before anything runs."""
    from sage.core.errors import InputError

    if held is None or not items:
        return
    known = set(held.patients)
    if held.spec.patient.ids == "tcga":
        of_cohort = [item for item in items if item.patient[:12].replace(".", "-") in known]
    else:
        of_cohort = [item for item in items if item.patient in known]
    if not of_cohort:
        raise InputError(
            f'no slide belongs to a patient of "{held.id}": the first seems to be of '
            f'"{items[0].patient}". Name the files in [slides] of cohort.toml (table and '
            "file_column), or rename them so that they begin with the patient and a dot"
        )


def _conflicts(items: list[Item]) -> dict[str, str]:
    """Slides whose own pixel size differs from `--mpp`, with a note, by name."""
    from mcp_servers.measures.maps import held_in

    outside = {item.name: held_in(item.path.parent).outside_card for item in items}
    return {
        name: note
        for name, notes in outside.items()
        for note in notes
        if note.startswith("the pixel size was set")
    }


def report_measured(
    found: Measured, conflicts: dict[str, str], files: dict[str, Path], *, as_json: bool
) -> None:
    """Print what was measured, and further `files` by name; exit with 1 if a slide failed."""
    from sage.cli.console import out as console
    from sage.cli.console import print_json, print_line

    if as_json:
        print_json(
            {
                "table": str(found.table),
                "validity": str(found.validity),
                "declaration": str(found.declaration),
                "patients": found.patients,
                "slides": found.slides,
                "measurements": found.measurements,
                "valid": found.valid,
                "resumed": found.resumed,
                "failures": found.failures,
                "other_pixel_size": conflicts,
                **{name: str(path) for name, path in files.items()},
            }
        )
        if found.failures:
            raise typer.Exit(1)
        return
    done = found.slides - len(found.failures)
    console.print(
        f"{count_noun(found.measurements, 'measurement')} of"
        f" {count_noun(found.patients, 'patient')} on {done} of"
        f" {count_noun(found.slides, 'slide')},"
        f" {found.resumed} from before; {found.valid} of"
        f" {found.measurements * found.patients} values are valid"
    )
    console.print(f"{found.table}  (--features, or the lines of {found.declaration.name})")
    console.print(f"{found.validity}")
    for path in files.values():
        console.print(f"{path}")
    if conflicts:
        console.print(
            f"{len(conflicts)} slides say another pixel size; their values are not valid:"
        )
    for name, note in list(conflicts.items())[:20]:
        print_line(f"  {name}: {note}")
    for name, reason in found.failures.items():
        print_line(f"failed: {name}: {reason}")
    if found.failures:
        raise typer.Exit(1)

"""Running programs on slides in the sandbox, from typed maps to a number or reason per slide."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field, TypeAdapter, ValidationError

from mcp_servers.measures.compute import Value, compute
from mcp_servers.measures.maps import MANIFEST, ShapeMap, SlideMaps, read_maps
from mcp_servers.measures.places import Cells, Objects
from mcp_servers.measures.prepared import Prepared, Undefined
from mcp_servers.workers.cohort import Item, Outcome
from sage.core.errors import InputError
from sage.core.files import write_json, write_text
from sage.core.hashes import hash_file
from sage.core.models import Strict
from sage_programs.contract import Contract, Program
from sandbox.types import Job, Limits, Reason, Sandbox

AT_ONCE = 40
"""Number of slides per sandbox run."""
SECONDS, SECONDS_PER_SLIDE = 20.0, 5.0
MEMORY_MB = 1024
MAX_BYTES = 4 << 20
RECORD = "program.json"
WHY = {
    "none": "the program gives no value for this slide",
    "shape": "the program returned something that is not one number",
    "finite": "the program's value is not finite",
    "raised": "the program failed on this slide",
}
"""All reasons that a program can give for a missing value.

None of a program's own text leaves the sandbox.
"""


class _Row(Strict):
    value: float | None = Field(default=None, allow_inf_nan=False)
    why: Literal["none", "shape", "finite", "raised"] | None = None


def default_sandbox() -> Sandbox:
    """Return the sandbox for programs, in which no SAGE package can be imported."""
    from sandbox.chooser import choose

    return choose(packages=())


def run_program(
    program: Program,
    slides: Sequence[SlideMaps],
    box: Sandbox,
    parameters: Mapping[str, float] | None = None,
) -> list[float | str]:
    """Compute the program's number for each slide, or the reason why it has none.

    Parameters
    ----------
    program : program, which is treated as hostile even if checked
    slides : maps; the program gets the items that its contract reads, without slide or
        patient names
    parameters : replacements for the contract's parameters

    Raises
    ------
    InputError
        If the whole run failed because of time, memory, output, or the sandbox itself.
    """
    given = dict(program.contract.parameters if parameters is None else parameters)
    with tempfile.TemporaryDirectory(prefix="sage-measure-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        inputs, output = folder / "slides", folder / "out"
        inputs.mkdir(mode=0o755)
        jobs = []
        for number, maps in enumerate(slides):
            file = f"{number}.npz"
            np.savez(inputs / file, **_arrays(maps, program.contract))
            jobs.append({"file": file, "parameters": given})
        (inputs / "jobs.json").write_text(json.dumps(jobs), encoding="utf-8")
        harness = Path(__file__).with_name("harness.py").read_text(encoding="utf-8")
        job = Job(
            files={"harness.py": harness, "program.py": program.source},
            command=("python", "-c", _START),
            inputs={"slides": inputs},
            output=output,
            limits=Limits(
                seconds=SECONDS + SECONDS_PER_SLIDE * len(slides),
                memory_mb=MEMORY_MB,
                cpus=1,
                pids=32,
                output_mb=8,
                log_kb=16,
            ),
            offers_sage=False,
            label="measurement",
        )
        result = box.run(job)
        if not result.ok:
            ended = f"{result.reason.value} {result.message}".strip()
            if result.reason is Reason.TIMEOUT:
                ended = f"it did not finish within {job.limits.seconds:.0f} s"
            raise InputError(f"{program.contract.name}: the program did not run: {ended[:300]}")
        return _read_values(output / "values.json", len(slides), program.contract.name)


_START = "import os, sys; sys.path.insert(0, os.getcwd()); import harness; harness.main()"


def with_values(
    programs: Sequence[Program], slides: Iterable[SlideMaps], box: Sandbox
) -> Iterator[SlideMaps]:
    """Yield the slides with the programs' values, keeping only a few in memory at a time.

    If a program's whole run fails, its slides get no value, only the reason.
    """
    rest = iter(slides)
    while held := list(islice(rest, AT_ONCE)):
        by_program = {program.digest: _all_or_why(program, held, box) for program in programs}
        for place, maps in enumerate(held):
            coded = {digest: values[place] for digest, values in by_program.items()}
            yield replace(maps, coded=coded)


class _Record(Strict):
    """Provenance of a measured slide: program, maps and sandbox."""

    program: str
    maps: str
    sandbox: str


def measure_items(
    program: Program,
    items: Sequence[Item],
    out: Path,
    box: Sandbox,
    on_outcome: Callable[[Outcome, int, int], None],
) -> list[Outcome]:
    """Run a program on a cohort's slides, and write the values that `write_variables` reads.

    A slide that already has a matching record is not measured again. Only a few slides are
    kept in memory at a time.

    Parameters
    ----------
    program : approved by a person (`review.approved_program`)
    items : the slides' maps (`maps.json`) with their patients
    out : receives `measure_maps/SLIDE/values.jsonl` and, last, `program.json`
    on_outcome : called with each slide's outcome, the number finished, and the total
    """
    outcomes: list[Outcome] = []

    def add_outcome(outcome: Outcome) -> None:
        outcomes.append(outcome)
        on_outcome(outcome, len(outcomes), len(items))

    rest = iter(items)
    while held := list(islice(rest, AT_ONCE)):
        todo: list[tuple[Item, SlideMaps, _Record]] = []
        for item in held:
            folder = item.path.parent if item.path.name == MANIFEST else item.path
            record = _Record(
                program=program.digest,
                maps=hash_file(folder / MANIFEST),
                sandbox=box.name,
            )
            try:
                if _is_done(out / "measure_maps" / item.name, record):
                    add_outcome(Outcome(item, resumed=True))
                else:
                    todo.append((item, read_maps(folder), record))
            except InputError as error:
                add_outcome(Outcome(item, error=str(error)))
        coded = with_values([program], [maps for _, maps, _ in todo], box)
        for (item, _, record), maps in zip(todo, coded, strict=True):
            _keep(out / "measure_maps" / item.name, compute(program.measurement, maps), record)
            add_outcome(Outcome(item))
    return outcomes


def _is_done(folder: Path, record: _Record) -> bool:
    try:
        before = _Record.model_validate_json((folder / RECORD).read_bytes())
    except (OSError, ValidationError):
        return False
    return before.program == record.program and before.maps == record.maps


def _keep(folder: Path, value: Value, record: _Record) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).unlink(missing_ok=True)
    write_text(folder / "values.jsonl", value.model_dump_json(exclude_defaults=True) + "\n")
    write_json(folder / RECORD, record)


def _all_or_why(program: Program, slides: Sequence[SlideMaps], box: Sandbox) -> list[float | str]:
    try:
        return run_program(program, slides, box)
    except InputError as error:
        return [str(error)] * len(slides)


def _read_values(path: Path, count: int, name: str) -> list[float | str]:
    """Read the harness's output, checking only its form."""
    try:
        if path.is_symlink() or path.stat().st_size > MAX_BYTES:
            raise InputError(f"{name}: the program's output is not a table of values")
        rows = TypeAdapter(list[_Row]).validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError):
        raise InputError(f"{name}: the program wrote no values") from None
    if len(rows) != count:
        raise InputError(f"{name}: got {len(rows)} values for {count} slides")
    return [WHY[row.why or "none"] if row.value is None else row.value for row in rows]


def _arrays(maps: SlideMaps, contract: Contract) -> dict[str, Any]:
    """Build the arrays that a contract reads from a slide, restricted to its window."""
    prepared = Prepared(maps)
    found: dict[str, Any] = {}
    reads = {source: set[str]() for source in ("cells", "objects", "regions", "tissue")}
    for word in contract.reads:
        source, _, name = word.partition(".")
        reads[source].add(name)
    if reads["tissue"] and maps.window is not None:
        found |= _shapes("window:tissue", [maps.window])
        found["area_um2"] = maps.area_um2
    if reads["cells"] and maps.cells is not None:
        cells = maps.cells.take(prepared.chosen(Cells(), None))
        names = np.array([*cells.types, ""])
        if "" not in reads["cells"]:
            cells = cells.take(np.isin(names[cells.codes], sorted(reads["cells"])))
        found |= {"cells:x": cells.x_um, "cells:y": cells.y_um, "cells:types": names[cells.codes]}
        found |= {f"column:{name}": column.values for name, column in cells.columns.items()}
    for kind in _kinds(maps.objects, reads["objects"]):
        found |= _shapes(f"objects:{kind}", prepared.shapes(Objects(type=kind), None))
    for kind in _kinds(maps.regions, reads["regions"]):
        try:
            found |= _shapes(f"regions:{kind}", prepared.region(kind).geoms)
        except Undefined:
            found |= _shapes(f"regions:{kind}", [])
    return found


def _kinds(held: ShapeMap | None, wanted: set[str]) -> list[str]:
    if held is None or not wanted:
        return []
    return [kind for kind in held.kinds if "" in wanted or kind in wanted]


def _shapes(prefix: str, shapes: Iterable[Any]) -> dict[str, Any]:
    """Flatten shapes into points, each point's ring, each ring's shape, and a count."""
    import shapely

    points, ring_of, count = [np.zeros((0, 2))], [np.zeros(0, dtype=np.int64)], 0
    shape_of: list[int] = []
    for count, shape in enumerate(shapes, 1):
        for part in shapely.get_parts(shape):
            rings = [part] if part.geom_type == "Point" else [part.exterior, *part.interiors]
            for ring in rings:
                xy = shapely.get_coordinates(ring)
                points.append(xy)
                ring_of.append(np.full(len(xy), len(shape_of), dtype=np.int64))
                shape_of.append(count - 1)
    return {
        f"{prefix}:points": np.concatenate(points),
        f"{prefix}:ring": np.concatenate(ring_of),
        f"{prefix}:shape": np.array(shape_of, dtype=np.int64),
        f"{prefix}:count": count,
    }

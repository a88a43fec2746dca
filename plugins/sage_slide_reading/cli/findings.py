"""`sage reading measure` and `sage reading maps`: convert a reading's findings to maps."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.measure import SuiteName, measure_cohort, report_measured
from sage.cli.options import AsJson

if TYPE_CHECKING:
    from mcp_servers.workers.cohort import Item

MAX_BYTES = 64 << 20


def measure(
    cohort: Annotated[
        str, typer.Argument(metavar="COHORT", help="Cohort folder or name, or - for none.")
    ],
    slides: Annotated[Path, typer.Option(help="Slide folder, or a single slide.")],
    questions: Annotated[
        list[str],
        typer.Option(
            "--question",
            help="Question for every slide, each about a different concept; repeatable.",
        ),
    ],
    define: Annotated[
        Path | None, typer.Option(help="File with measurements, one formula per line.")
    ] = None,
    suite: Annotated[
        SuiteName, typer.Option(help="Suite of generated measurements; replaced by --define.")
    ] = "standard",
    out: Annotated[Path, typer.Option(help="Folder for states, maps and tables.")] = Path("read"),
    mpp: Annotated[
        float | None,
        typer.Option(help="µm per pixel for slides whose files do not specify it.", min=0.01),
    ] = None,
    workers: Annotated[
        str, typer.Option(help='Number of processes, or "pool", "ray", or "ray://host:port".')
    ] = "pool",
    cache: Annotated[
        Path | None, typer.Option(help="Folder for results by content; default: in OUT.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read every slide in a cohort, and measure the reader's findings as variables.

    Repeat the command after an interruption: finished slides are not read again.

    Example:

        sage reading measure my-cohort --question "Where is the tumor?" --slides slides
    """
    from sage_slide_reading.reader.tools import check_questions

    check_questions(questions)
    found, items, conflicts = measure_cohort(
        cohort, slides, None, out, tool="read_findings", suite_of_tool="all",
        arguments={"questions": questions}, define=define, suite=suite, mpp=mpp, workers=workers,
        cache=cache, quiet=as_json,
    )  # fmt: skip
    answers = _write_answers(items, out / "answers.csv")
    report_measured(found, conflicts, {"answers": answers}, as_json=as_json)


def import_reading(
    file: Annotated[Path, typer.Argument(help="reading.json file written by `sage reading read`.")],
    out: Annotated[
        Path, typer.Option(help="Folder for maps, with one subfolder per slide.")
    ] = Path("maps"),
    slide: Annotated[
        str | None, typer.Option(help="Slide name; default: from the reading.")
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="Patient ID for the slide; default: from the slide name.")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Replace objects already in the folder.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Convert a reading to typed maps, which `sage slides measure --maps` counts.

    Example: sage reading maps reading/reading.json --out maps
    """
    from sage.cli.slides import print_maps, store_maps
    from sage.core.errors import InputError
    from sage.core.models import read_model
    from sage_slide_reading.reader.maps import findings_of
    from sage_slide_reading.reader.types import Reading

    if not file.is_file() or file.stat().st_size > MAX_BYTES:
        raise InputError(f"{file}: expected a reading.json of at most {MAX_BYTES >> 20} MiB")
    reading = read_model(file, Reading)
    reading = reading.model_copy(update={"slide": slide or reading.slide})
    row = store_maps(findings_of([reading], patient=patient), out, replace=replace)
    print_maps([row], as_json=as_json)


def _write_answers(items: list[Item], target: Path) -> Path:
    """Write the answer to each question on each slide as CSV."""
    import csv
    import json

    from sage.core.files import replacing
    from sage.core.printable import as_cell, one_line
    from sage_slide_reading.reader.tools import ANSWERS

    with replacing(target) as part, part.open("w", newline="", encoding="utf-8") as stream:
        rows = csv.writer(stream)
        rows.writerow(["patient", "slide", "question", "answer", "reasoning", "regions"])
        for item in items:
            answers = json.loads((item.path.parent.parent / ANSWERS).read_text(encoding="utf-8"))
            for answer in answers:
                words = [answer["question"], answer["answer"] or "abstains", answer["reasoning"]]
                cells = [as_cell(one_line(word)) for word in (item.patient, item.name, *words)]
                rows.writerow([*cells, answer["regions"]])
    return target

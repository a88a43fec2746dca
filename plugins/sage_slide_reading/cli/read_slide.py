"""`sage reading read`: ask a question about a slide, and see how the slide was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from sage_slide_reading.reader.person import Person
    from sage_slide_reading.reader.types import Reading


def read_slide(
    slide: Annotated[Path, typer.Argument(help="Slide or image file.")],
    question: Annotated[str, typer.Argument(help="Question in plain words.")],
    answers: Annotated[
        list[str] | None,
        typer.Option("--answer", help="Option of a multiple-choice question; repeatable."),
    ] = None,
    eyes: Annotated[
        Literal["computed", "clip", "model"],
        typer.Option(
            help="computed: measurements and rules; clip: your CLIP-style weights navigate; model: "
            "a vision-language model describes and decides."
        ),
    ] = "computed",
    weights: Annotated[
        Path | None, typer.Option(help="Folder of a CLIP-style model, for clip and model.")
    ] = None,
    mpp: Annotated[
        float | None, typer.Option(help="µm per pixel, if the file does not state it.")
    ] = None,
    magnification: Annotated[float, typer.Option(help="Magnification of the first round.")] = 5.0,
    patch_px: Annotated[
        int, typer.Option(help="Patch side length, in pixels at the patch's magnification.")
    ] = 256,
    rounds: Annotated[int, typer.Option(help="Maximum number of rounds.", min=1, max=20)] = 5,
    intervene: Annotated[
        bool, typer.Option("--intervene", help="Pause at every step for your changes.")
    ] = False,
    agent: Annotated[
        Literal["pathagent", "o3"],
        typer.Option(
            help="pathagent: the reader chooses where to look; o3: a behavior learned from "
            "recorded sessions proposes the regions (Pathologist-o3)."
        ),
    ] = "pathagent",
    behavior: Annotated[
        Path | None,
        typer.Option(help="o3: folder of a behavior model; default: the bundled model."),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="o3: behavior from the bank; default: chosen by the model, or else the first."
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            help="o3: maximum number of regions; default: as many as readers visit.", min=1
        ),
    ] = None,
    from_page: Annotated[
        bool,
        typer.Option(
            "--intervene-from-page",
            help="Take your changes from the reading's folder, where the slides page of `sage "
            "serve` saves them.",
        ),
    ] = False,
    pause: Annotated[
        bool, typer.Option("--pause", help="With --intervene-from-page: pause at every step.")
    ] = False,
    budget_usd: Annotated[
        float | None, typer.Option(min=0, help="Maximum cost of the model, in USD.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the reading; default: SLIDE.reading")
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite the folder's contents.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Answer a question about a slide by navigating it (PathAgent, Pathologist-o3).

    The reader looks at low power, predicts, reflects, then looks closer or elsewhere; with
    --agent o3, it looks at the regions that a learned behavior proposes. The folder contains
    the reading with its steps, and the regions as GeoJSON.

    Example: sage reading read slide.svs "Where is the tumor?" --out reading --replace

    Example: sage reading read slide.svs "Is there metastatic tumor?" --agent o3 --most 4
    """
    from pydantic import ValidationError

    from mcp_servers.context import remove_path
    from mcp_servers.slides.slide import Slide
    from sage.cli.console import print_json, print_line
    from sage.core.errors import InputError, SageError, explain_validation
    from sage.core.llm.budget import BudgetError, Meter
    from sage.core.llm.failures import ModelError
    from sage.core.llm.trace import Trace
    from sage.core.printable import count_noun
    from sage_slide_reading.behavior.model import BehaviorModel
    from sage_slide_reading.reader.algorithm import read_slide as read
    from sage_slide_reading.reader.export import LOCK, READING, moving_view, write_reading
    from sage_slide_reading.reader.eyes import make_eyes
    from sage_slide_reading.reader.o3 import o3_scope, read_guided
    from sage_slide_reading.reader.person import FolderPerson, TerminalPerson
    from sage_slide_reading.reader.scope import Scope
    from sage_slide_reading.reader.types import Options, make_question

    if (intervene and from_page) or (pause and not from_page):
        raise InputError("--pause requires --intervene-from-page instead of --intervene")
    asked = make_question(question, answers or ())
    try:
        options = Options(magnification=magnification, patch_px=patch_px, rounds=rounds)
    except ValidationError as error:
        raise InputError(explain_validation(error)) from None
    if agent == "pathagent" and (behavior or task or most):
        raise InputError("--behavior, --task and --most require --agent o3")
    if agent == "o3" and (intervene or from_page):
        raise InputError("--intervene and --intervene-from-page require --agent pathagent")
    guide = BehaviorModel(behavior) if agent == "o3" else None
    with Slide.open(slide, mpp=mpp) as opened:
        folder = out or Path(f"{opened.name}.reading")
        found = [path for path in folder.iterdir() if path.name != LOCK] if folder.exists() else []
        if found and not replace:
            raise InputError(
                f"--out {folder} already exists; choose another folder, or overwrite with --replace"
            )

        def show(line: str) -> None:
            print_line(line, err=as_json)

        with moving_view(folder):
            trace = folder / "trace.jsonl"
            trace.unlink(missing_ok=True)
            try:
                chosen = make_eyes(eyes, weights, folder, budget_usd, Trace(trace))
                scope = o3_scope(opened) if guide else Scope(opened, options)
            except SageError:
                if not found:
                    remove_path(folder)
                raise
            (folder / READING).unlink(missing_ok=True)
            person: Person | None = TerminalPerson(scope, input, show) if intervene else None
            if from_page:
                person = FolderPerson(scope, folder, pause=pause)
            try:
                if guide is not None:
                    reading = read_guided(scope, chosen, guide, asked, behavior=task, most=most)
                else:
                    show(f"{opened.name}: {len(scope.patches)} patches at {magnification:g}x")
                    reading = read(scope, chosen, asked, options, person=person)
            except (ModelError, BudgetError) as error:
                # A model's failures name the remedy for a run, which this is not.
                way = f"the same command with --replace (replies in {folder} are kept)"
                said = str(error).replace("`sage resume`", way)
                said = said.replace("resume with a larger", f"{way} and a larger")
                raise type(error)(said) from None
            names = write_reading(reading, folder)
    if as_json:
        print_json(reading.model_dump(mode="json"))
        return
    for line in describe_reading(reading):
        show(line)
    meter = Meter(folder / "spending.jsonl")
    if meter.calls:
        show(f"Model: {count_noun(meter.calls, 'call')}, {meter.total_usd:.4f} USD")
    show(f"{folder}: {', '.join(names.values())}")


def describe_reading(reading: Reading) -> list[str]:
    """Format a reading as lines for the terminal."""
    from sage.core.printable import count_noun

    lines = []
    for step in reading.steps:
        lines.append(
            f"Round {step.round}, {step.action} at {step.magnification:.3g}x: "
            f"{count_noun(len(step.seen), 'region')}, looking for {step.looked_for}"
        )
        for seen in step.seen[:6]:
            x, y = seen.region.um[:2]
            lines.append(f"  {seen.region.id} at {x / 1000:.2f}, {y / 1000:.2f} mm: {seen.text}")
        if len(step.seen) > 6:
            lines.append(f"  and {len(step.seen) - 6} more")
        lines.extend(f"  you: {note}" for note in step.interventions)
        if step.why_next:
            lines.append(f"  next: {step.why_next}")
    read = reading.read
    lines.append(f"Answer: {reading.answer if reading.answer is not None else 'none (abstains)'}")
    lines.append(f"Because: {reading.reasoning}")
    lines.append(
        f"Read: {count_noun(read.regions, 'region')}; {read.overview_share:.0%} of the tissue at"
        f" low power, {read.high_power_share:.1%} at high power"
    )
    lines.append(reading.statement)
    return lines

"""`sage reading`: recorded sessions, their actions, and drafts with their reviews."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from sage.cli.console import print_json, print_line
from sage.cli.options import AsJson
from sage.core.printable import count_noun

app = typer.Typer(
    add_completion=False,
    name="sessions",
    help="Recorded slide readings: actions, drafts, review, export.",
    no_args_is_help=True,
)
SessionFile = Annotated[Path, typer.Argument(metavar="SESSION", help="A *.session.jsonl file.")]


@app.callback()
def group() -> None:
    """List, draft, review and export recorded slide readings."""


@app.command("sessions")
def list_sessions(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Session folder; default: the folder in which `sage serve` records."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the sessions in a folder: reader, slide, events, actions, and review.

    Example: sage reading sessions
    """
    from sage.core.errors import InputError
    from sage.settings import load
    from sage_slide_reading.sessions.actions import actions_of
    from sage_slide_reading.sessions.drafts import drafts_path, read_decisions, read_drafts
    from sage_slide_reading.sessions.format import SUFFIX, read_session
    from sage_slide_reading.sessions.recording import FOLDER

    place = folder or load().runs_dir / FOLDER
    if folder is not None and not folder.is_dir():
        raise InputError(f"{folder}: folder not found")
    rows: list[dict[str, Any]] = []
    for path in sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else []:
        try:
            session = read_session(path)
            drafted = drafts_path(path)
            decided = None
            if drafted.is_file():
                drafts = read_drafts(drafted)
                decided = f"{len(read_decisions(drafted, drafts))}/{len(drafts.rounds)}"
            rows.append({
                "session": path.name, "slide": session.header.slide,
                "reader": session.header.reader, "task": session.header.task,
                "events": len(session.events), "seconds": round(session.seconds, 1),
                "actions": len(actions_of(session)), "reviewed": decided,
            })  # fmt: skip
        except InputError as error:
            rows.append({"session": path.name, "error": str(error)})
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_line(f"no sessions in {place}; record one on the slides page of `sage serve`")
    for row in rows:
        said = row.get("error") or (
            f"{row['reader']} on {row['slide']}: {count_noun(row['events'], 'event')} in "
            f"{row['seconds']} s, {count_noun(row['actions'], 'action')}"
            + (f", {row['reviewed']} rounds reviewed" if row["reviewed"] else "")
            + (f" ({row['task']})" if row["task"] else "")
        )
        print_line(f"{row['session']}  {said}")


@app.command()
def actions(session: SessionFile, as_json: AsJson = False) -> None:
    """List a session's actions: commands such as <10x-inspect>, each with its box.

    Follows the rules of Pathology-CoT for stays, pans and peeks: overviews are removed,
    similar boxes merged, boxes that contain others removed, and sizes normalized.

    Example: sage reading actions reading.session.jsonl
    """
    from sage_slide_reading.sessions.actions import actions_of
    from sage_slide_reading.sessions.format import read_session

    found = actions_of(read_session(session))
    if as_json:
        print_json([action.model_dump() for action in found])
        return
    for action in found:
        print_line(
            f"{action.start_s:8.1f} s  {action.seconds:6.1f} s  {action.command:<14}"
            f"{action.kind:<5} {action.x:9.0f},{action.y:9.0f} "
            f"{action.w:7.0f} x {action.h:6.0f}  at {action.magnification:.3g}x"
        )


@app.command("import")
def import_log(
    log: Annotated[Path, typer.Argument(help="Log or annotations from another viewer.")],
    slide: Annotated[Path, typer.Option(help="Slide that was viewed.")],
    out: Annotated[Path, typer.Option(help="Session file to write, *.session.jsonl.")],
    reader: Annotated[str, typer.Option(help="Pseudonym of the reader.")],
    task: Annotated[str, typer.Option(help="Reader's task.")] = "",
    screen: Annotated[
        str, typer.Option(metavar="WxH", help="Viewer window size, in pixels.")
    ] = "1920x1080",
    second: Annotated[
        float, typer.Option(min=1e-9, help="Units per second in numeric times: 1000 for ms.")
    ] = 1000.0,
    mpp: Annotated[
        float | None, typer.Option(help="µm per pixel, if the slide does not state it.")
    ] = None,
) -> None:
    """Import a session from OpenSeadragon's event log, or from QuPath's view tracker.

    Example: sage reading import log.json --slide slide.svs --reader r1 --out a.session.jsonl
    """
    import re

    from pydantic import ValidationError

    from mcp_servers.slides.slide import Slide
    from sage.core.errors import InputError, explain_validation
    from sage_slide_reading.sessions.format import SUFFIX, describe_recording, write_session
    from sage_slide_reading.sessions.imports import read_log

    if not out.name.endswith(SUFFIX):
        raise InputError(f"--out {out}: the session file name must end in {SUFFIX}")
    found = re.fullmatch(r"([1-9]\d{1,4})x([1-9]\d{1,4})", screen)
    if not found:
        raise InputError(f"--screen {screen}: expected WIDTHxHEIGHT, such as 1920x1080")
    with Slide.open(slide, mpp=mpp) as opened:
        try:
            header = describe_recording(
                opened, slide.name, screen=(int(found[1]), int(found[2])), reader=reader, task=task
            )
        except ValidationError as error:
            raise InputError(f"import: {explain_validation(error)}") from None
    session = read_log(log, header, second)
    write_session(out, session)
    print_line(f"{out}: {count_noun(len(session.events), 'event')} in {session.seconds:.1f} s")


@app.command()
def draft(
    session: SessionFile,
    slide: Annotated[Path, typer.Option(help="Slide on which the session was recorded.")],
    eyes: Annotated[
        Literal["none", "model"],
        typer.Option(
            help="model: a vision-language model; none: empty panels, to be written from scratch."
        ),
    ] = "none",
    mpp: Annotated[
        float | None, typer.Option(help="µm per pixel, if the slide does not state it.")
    ] = None,
    budget_usd: Annotated[
        float | None, typer.Option(min=0, help="Maximum cost of the model, in USD.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Overwrite earlier drafts.")] = False,
) -> None:
    """Draft a thumbnail impression, a reason for the zoom, and findings for every action.

    Drafts are saved next to the session (*.drafts.json) and reviewed on the sessions page of `sage
    serve`.

    Example: sage reading draft reading.session.jsonl --slide slide.svs
    """
    from mcp_servers.slides.slide import Slide
    from sage.core.errors import InputError
    from sage.core.files import write_text
    from sage_slide_reading.reader.eyes import connect_vision
    from sage_slide_reading.reader.scope import ONE_UM, Scope
    from sage_slide_reading.reader.types import Options
    from sage_slide_reading.sessions.drafts import drafts_path
    from sage_slide_reading.sessions.format import read_session
    from sage_slide_reading.sessions.rationale import draft as make

    recorded = read_session(session)
    path = drafts_path(session)
    if path.exists() and not replace:
        raise InputError(f"{path} already exists; --replace overwrites it and voids its decisions")
    with Slide.open(slide, mpp=mpp) as opened:
        power = min(5.0, ONE_UM / opened.need_mpp())
        made = make(
            recorded,
            session.name,
            Scope(opened, Options(magnification=power)),
            connect_vision(session.parent, budget_usd) if eyes == "model" else None,
            lambda line: print_line(line, err=True),
        )
    write_text(path, made.model_dump_json(indent=1) + "\n")
    print_line(f"{path}: {count_noun(len(made.rounds), 'round')}. {made.statement}")


@app.command()
def review(
    drafts: Annotated[Path, typer.Argument(help="A *.drafts.json file.")],
    accept: Annotated[
        list[int] | None, typer.Option(help="Accept this round as drafted; repeatable.")
    ] = None,
    reject: Annotated[
        list[int] | None, typer.Option(help="Reject this round (no zoom here); repeatable.")
    ] = None,
    reviewer: Annotated[str, typer.Option(help="Name of the reviewer; required to decide.")] = "",
    as_json: AsJson = False,
) -> None:
    """Show a review's progress, and its seconds per round.

    Decide on the sessions page of `sage serve`, which shows the images. Alternatively,
    --accept and --reject record decisions here, by the number shown, without measuring time.

    Example: sage reading review drafted.drafts.json
    """
    from sage.core.errors import InputError
    from sage_slide_reading.sessions.drafts import audit, decide, read_decisions, read_drafts

    made = read_drafts(drafts)
    wanted = [(n, True) for n in accept or []] + [(n, False) for n in reject or []]
    if wanted and not reviewer:
        raise InputError("review: --reviewer is required to decide")
    for number, _ in wanted:
        if not 1 <= number <= len(made.rounds):
            raise InputError(f"review: no round {number}; there are {len(made.rounds)} rounds")
    for number, kept in wanted:
        rationale = made.rounds[number - 1].rationale
        decide(drafts, made, number - 1, rationale if kept else None, reviewer)
    decisions = read_decisions(drafts, made)
    found = audit(decisions)
    if as_json:
        print_json({
            "rounds": len(made.rounds), "decided": len(decisions),
            "states": {
                state: {"rounds": count, "seconds": seconds}
                for state, (count, seconds) in found.items()
            },
        })  # fmt: skip
        return
    for number, round_ in enumerate(made.rounds):
        decision = decisions.get(number)
        state = f"{decision.state} by {decision.reviewer}" if decision else "not reviewed"
        print_line(f"{number + 1:4} {round_.action.command:<14} {state}")
        for line in (decision.rationale if decision else round_.rationale).findings[:1]:
            print_line(f"       {line}")
    said = [
        f"{count} {state}" + (f" ({seconds:.1f} s each)" if seconds is not None else "")
        for state, (count, seconds) in found.items()
    ]
    print_line(f"{len(decisions)} of {count_noun(len(made.rounds), 'round')}: {', '.join(said)}")


@app.command()
def export(
    drafts: Annotated[list[Path], typer.Argument(help="*.drafts.json files.")],
    out: Annotated[Path, typer.Option(help="Folder for the two files.")],
    replace: Annotated[
        bool, typer.Option("--replace", help="Overwrite the folder's contents.")
    ] = False,
) -> None:
    """Write rounds that a reviewer kept as conversations (JSON lines) and COCO boxes.

    Example: sage reading export drafted.drafts.json --out dataset
    """
    from sage.core.errors import InputError
    from sage.core.hooks import EXPORTED, log_command
    from sage.settings import load
    from sage_slide_reading.sessions.drafts import read_decisions, read_drafts
    from sage_slide_reading.sessions.export import BOXES, CONVERSATIONS, Reviewed
    from sage_slide_reading.sessions.export import export as write

    if not replace and out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(
            f"--out {out} already exists; choose another folder, or overwrite with --replace"
        )
    reviewed = []
    for path in dict.fromkeys(map(Path.resolve, drafts)):  # each once, however often it is named
        made = read_drafts(path)
        reviewed.append(Reviewed(made, read_decisions(path, made)))
    kept = sum(1 for each in reviewed for _ in each.select_kept())
    if not kept:
        raise InputError("export: no rounds were accepted; review them first")
    log_command(load(), EXPORTED, out, command="sessions export")
    write(reviewed, out)
    print_line(f"{out}: {count_noun(kept, 'round')} in {CONVERSATIONS}, {BOXES}")

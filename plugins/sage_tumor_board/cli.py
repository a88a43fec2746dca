"""`sage board`: find passages in a patient's files that are relevant to a question."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from sage.cli.options import AsJson
from sage.core.models import Strict
from sage_tumor_board.agent import Passage

app = typer.Typer(no_args_is_help=True, help="Answer questions from a patient's dated files.")
CAUTION = (
    "These are quotes from the files, not advice. The command has not been validated on "
    "patients; clinicians must read the files and decide."
)


class Answer(Strict):
    """The passages found for a question, and the files that were not read."""

    patient: str
    question: str
    as_of: date
    model: str
    passages: tuple[Passage, ...]
    files: tuple[str, ...]
    later: tuple[str, ...]
    rows_later: int
    unread: dict[str, str]
    tools_missing: dict[str, str]
    caution: str = CAUTION


@app.callback()
def _group() -> None: ...


@app.command()
def ask(
    patient: Annotated[
        Path, typer.Argument(help="Folder with one patient's texts, tables and images.")
    ],
    question: Annotated[
        str | None, typer.Option(help="Question; default: disease, treatment and course.")
    ] = None,
    as_of: Annotated[
        str | None, typer.Option(help="YYYY-MM-DD; later content is not read. Default: today.")
    ] = None,
    age: Annotated[
        float | None,
        typer.Option(min=0, max=130, help="Age in years on that day, for timelines by age."),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of a CLIP-style pathology model, for the H&E tool.")
    ] = None,
    mpp: Annotated[float | None, typer.Option(min=0.01, help="µm per pixel in the images.")] = None,
    drugs: Annotated[
        Path | None, typer.Option(help="CSV with name and description, for the drug tool.")
    ] = None,
    pubmed: Annotated[
        bool, typer.Option("--pubmed", help="Offer PubMed; queries leave the machine.")
    ] = False,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="Cost limit.")] = None,
    out: Annotated[
        Path, typer.Option(help="Folder for the answer and the conversation with the model.")
    ] = Path("board"),
    as_json: AsJson = False,
) -> None:
    """Quote passages in a patient's files relevant to a question. Requires a language model.

    Each passage is copied verbatim from its file; nothing is added, and no advice is given.
    Files dated after --as-of are not read. The texts of requested files are sent to the
    model's endpoint.

    Example: sage board ask patient/ --question "Was the margin free?" --as-of 2024-06-01
    """
    from sage.cli.console import out as console
    from sage.cli.console import print_json
    from sage.core.clock import now
    from sage.core.errors import FaultError, InputError
    from sage.core.files import write_json, write_text
    from sage.core.llm.trace import Trace
    from sage.core.llm.turns import BoundError, UnusableError
    from sage.run.wiring import make_chat
    from sage.settings import load
    from sage_tumor_board.agent import REPLIES, ROLE, find_passages
    from sage_tumor_board.board import Board, list_missing
    from sage_tumor_board.desk import make_desk, read_drugs
    from sage_tumor_board.patient import DEFAULT_QUESTION, read_patient

    settings = load()
    if settings.effective_reasoner != "chat":
        raise InputError(
            "sage board ask requires a language model: set base_url (`sage admin "
            'config` shows where) and reasoner = "chat"'
        )
    try:
        day = date.fromisoformat(as_of) if as_of is not None else now().date()
    except ValueError:
        raise InputError(f"--as-of {as_of}: expected YYYY-MM-DD") from None
    asked = DEFAULT_QUESTION if question is None else question
    found = read_patient(patient, asked, day, age)
    if out.resolve().is_relative_to(patient.resolve()):
        raise InputError(f"--out {out} is inside the patient's folder; choose another folder")
    desk = make_desk(settings, drugs=read_drugs(drugs) if drugs else {}, weights=weights, mpp=mpp,
                     pubmed=pubmed)  # fmt: skip
    chat = settings.model_copy(update={"repairs": REPLIES - 1})
    reasoner = make_chat(chat, out, budget_usd=budget_usd, trace=Trace(out / "trace.jsonl"))
    board = Board(found.case, 1, desk)
    try:
        passages = find_passages(board, reasoner, day.isoformat()).output.passages
    except (UnusableError, BoundError) as error:
        raise FaultError(f"the passages cited by the model do not occur in the files: {error}"
                         ) from None  # fmt: skip
    answer = Answer(
        patient=patient.resolve().name, question=asked, as_of=day,
        model=reasoner.settings.models[ROLE].name, passages=passages, files=tuple(board.read),
        later=found.later, rows_later=found.rows_later, unread=found.unread,
        tools_missing=list_missing(desk),
    )  # fmt: skip
    write_json(out / "board.json", answer.model_dump(mode="json"))
    lines = render_answer(answer)
    write_text(out / "board.txt", "\n".join(lines) + "\n")
    if as_json:
        print_json(answer.model_dump(mode="json"))
        return
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def render_answer(answer: Answer) -> list[str]:
    """Render an answer as lines of text."""
    from sage.core.printable import one_line

    lines = [f"{one_line(answer.patient)}, known as of {answer.as_of}, by {answer.model}",
             f"Question: {one_line(answer.question)}"]  # fmt: skip
    lines += [
        f'{number}. {one_line(item.file)}: "{one_line(item.quote)}"'
        for number, item in enumerate(answer.passages, 1)
    ] or ["No passage found."]
    if answer.later or answer.rows_later:
        lines.append(f"Dated later and not read: {len(answer.later)} files,"
                     f" {answer.rows_later} rows or passages")  # fmt: skip
    if answer.tools_missing:
        needs = ", ".join(f"{name} ({need})" for name, need in answer.tools_missing.items())
        lines.append(f"Tools not available: {needs}")
    lines += [f"Not read: {name}: {why}" for name, why in answer.unread.items()]
    return [*lines, answer.caution]

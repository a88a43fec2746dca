"""`sage mdt`: what one patient's files state, each sentence with its passage."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from agents.base import Reasoner


class AgentName(StrEnum):
    """Who reads the files."""

    RULES = "rules"
    CHAT = "chat"


def mdt(
    patient: Annotated[Path, typer.Argument(help="Folder of one patient: texts, tables, images.")],
    question: Annotated[str | None, typer.Option(help="What is asked; default: the case.")] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="An answer to weigh; give it two to six times.")
    ] = None,
    as_of: Annotated[
        str | None,
        typer.Option(help="YYYY-MM-DD: nothing dated later is read. Default: today."),
    ] = None,
    age: Annotated[
        float | None, typer.Option(min=0, max=130, help="Years at that day, for timelines by age.")
    ] = None,
    agent: Annotated[AgentName, typer.Option(help="Rules, or a model.")] = AgentName.RULES,
    weights: Annotated[
        Path | None, typer.Option(help="Folder of a CLIP-type pathology model, for the H&E tool.")
    ] = None,
    mpp: Annotated[float | None, typer.Option(min=0.01, help="µm per pixel of the images.")] = None,
    drugs: Annotated[
        Path | None, typer.Option(help="CSV of name and description, for the drug tool.")
    ] = None,
    pubmed: Annotated[
        bool, typer.Option("--pubmed", help="Offer PubMed; queries leave the machine.")
    ] = False,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="What a model may cost.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for mdt.json and mdt.txt; needed by --agent chat.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """State what one patient's files say about a question, each sentence with its passage.

    It gives no advice, and was not validated on patients: clinicians read the files and decide.
    Files dated after --as-of are not read. With --agent chat the files' texts go to the model's
    endpoint, and a sentence whose passage does not stand in its file is refused.

    Example: sage mdt patient/ --as-of 2024-06-01

    Example: sage mdt patient/ --question "Was the margin free?" --option Yes --option No
    """
    from datetime import date

    from benchmarks.adapters.mtb.desk import make_desk, read_drugs
    from sage.cli.console import out as console
    from sage.cli.console import print_json
    from sage.core.clock import now
    from sage.core.errors import FaultError, InputError
    from sage.core.files import write_json, write_text
    from sage.core.llm.turns import BoundError, UnusableError
    from sage.settings import load
    from sage_tumor_board.board.board import Board, lacking
    from sage_tumor_board.board.mdt import ask_mdt
    from sage_tumor_board.meeting import WHAT, Stated, read_patient, told

    try:
        day = date.fromisoformat(as_of) if as_of is not None else now().date()
    except ValueError:
        raise InputError(f"--as-of {as_of}: not a day; write YYYY-MM-DD") from None
    asked = WHAT if question is None else question
    found = read_patient(patient, asked, tuple(option or ()), day, age)
    if out is not None and out.resolve().is_relative_to(patient.resolve()):
        raise InputError(f"--out {out} lies in the patient's folder; name another")
    if out is None and agent is AgentName.CHAT:
        raise InputError("--agent chat needs --out: what was asked and answered is kept there")
    settings = load(reasoner=agent.value)
    desk = make_desk(settings, drugs=read_drugs(drugs) if drugs else {}, weights=weights, mpp=mpp,
                     pubmed=pubmed)  # fmt: skip
    reasoner, name = _reasoner(agent, out, budget_usd)
    board = Board(found.case, 1, desk)
    try:
        answer = ask_mdt(board, reasoner, day.isoformat()).output
    except (UnusableError, BoundError) as error:
        raise FaultError(f"no answer that every passage bears out: {error}") from None
    stated = Stated(
        patient=patient.resolve().name, question=asked, options=board.question.options, as_of=day,
        agent=name, answer=answer, files=tuple(board.read), later=found.later,
        rows_later=found.rows_later, unread=found.unread, lacking=lacking(desk),
    )  # fmt: skip
    if out is not None:
        write_json(out / "mdt.json", stated.model_dump(mode="json"))
        write_text(out / "mdt.txt", "\n".join(told(stated)) + "\n")
    if as_json:
        print_json(stated.model_dump(mode="json"))
        return
    for line in told(stated):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _reasoner(agent: AgentName, out: Path | None, budget_usd: float | None) -> tuple[Reasoner, str]:
    from agents.base import Resources
    from agents.reasoners.rules import RulesReasoner
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat, make_ontology
    from sage.settings import load
    from sage_tumor_board.board.agent import REPLIES, ROLE

    if agent is AgentName.RULES or out is None:
        return RulesReasoner(Resources(ontology=make_ontology())), "rules"
    settings = load(reasoner="chat").model_copy(update={"repairs": REPLIES - 1})
    reasoner = make_chat(settings, out, budget_usd=budget_usd, trace=Trace(out / "trace.jsonl"))
    return reasoner, f"chat {reasoner.settings.models[ROLE].name}"


app = typer.Typer(no_args_is_help=True, help="Questions over a patient's dated files.")
app.command("ask")(mdt)


@app.callback()
def _group() -> None: ...

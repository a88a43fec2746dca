"""`sage bench mtb`: a molecular tumor board's questions, asked of an agent and scored."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from agents.base import Reasoner
    from benchmarks.adapters.mtb.scores import Scored
    from benchmarks.adapters.mtb.types import Loaded, Row
    from sage.settings import Settings


class AgentName(StrEnum):
    """Who answers."""

    CHAT = "chat"
    RULES = "rules"
    REPLAY = "replay"


class TrackName(StrEnum):
    """Which patients."""

    ALL = "all"
    HANCOCK = "hancock"
    MSK = "msk"


def mtb(
    folder: Path = typer.Argument(
        ...,
        help="MTBBench's published conversations (agent_logs_hancock, agent_logs_msk), or downloads"
        " of HANCOCK (StructuredData, TextData, …) and MSK-CHORD (data_clinical_patient.txt, …).",
    ),
    agent: AgentName = typer.Option(AgentName.REPLAY, help="Who answers."),
    of: str | None = typer.Option(
        None, "--of", help="replay: the model whose published answers are scored; default: all."
    ),
    track: TrackName = typer.Option(TrackName.ALL, help="Which patients."),
    half: str | None = typer.Option(
        None, help="Only the development or the held-out half of the patients (by hash)."
    ),
    limit: int | None = typer.Option(None, min=1, help="Only the first patients of a track."),
    weights: Path | None = typer.Option(
        None, help="Folder of a CLIP-type pathology model, for the H&E tool."
    ),
    mpp: float | None = typer.Option(None, min=0.01, help="µm per pixel of the images."),
    drugs: Path | None = typer.Option(None, help="CSV of name and description, for the drug tool."),
    pubmed: bool = typer.Option(False, "--pubmed", help="Offer PubMed; queries leave the machine."),
    budget_usd: float | None = typer.Option(None, min=0, help="What a model may cost in all."),
    out: Path = typer.Option(
        Path("bench-mtb"), help="Folder of the answers; a run that was cut short goes on there."
    ),
    as_json: AsJson = False,
) -> None:
    """Ask a molecular tumor board's questions patient by patient, and score the answers (MTBBench).

    Files are listed, requested, and open for one question; what is later cannot be reached.
    Accuracy has an interval that draws patients, beside the best constant letter.

    Example: sage bench mtb benchmarks/mtbbench --agent replay
    """
    from benchmarks.adapters.mtb.scores import score
    from benchmarks.adapters.mtb.source import load
    from sage.cli.console import counting, print_json
    from sage.cli.console import out as console
    from sage.core.errors import InputError
    from sage.core.files import write_json, write_text
    from sage_tumor_board.board.types import Track

    if half not in (None, "development", "held-out"):
        raise InputError(f"--half {half}: development or held-out")
    if of is not None and agent is not AgentName.REPLAY:
        raise InputError("--of goes with --agent replay")
    tracks = tuple(Track) if track is TrackName.ALL else (Track(track.value),)
    loaded = [_chosen(item, half, limit) for item in load(folder, tracks, limit)]
    results: list[Scored] = []
    total = sum(len(case.questions) for item in loaded for case in item.cases)
    with counting("questions", quiet=as_json) as advance:
        done = 0
        for item in loaded:
            answered: dict[str, list[Row]] = {}
            for name, row in _rows(item, agent, of, out, weights, mpp, drugs, pubmed, budget_usd):
                answered.setdefault(name, []).append(row)
                done += 1
                advance("questions", min(done, total), total)
            results += [score(rows, name) for name, rows in answered.items()]
            for name, rows in answered.items() if agent is AgentName.REPLAY else ():
                write_text(out / f"{name}.{item.track.value}.jsonl",
                           "".join(f"{row.model_dump_json()}\n" for row in rows))  # fmt: skip
    if not results:
        raise InputError(f"{folder}: no published conversations in it; --agent rules or chat asks")
    result: dict[str, Any] = {
        "agent": agent.value,
        "half": half,
        "tracks": [item.model_dump(mode="json") for item in results],
        "patients_without_some_files": {
            case: list(names) for item in loaded for case, names in item.absent.items() if names
        },
    }
    write_json(out / f"{agent.value}.scores.json", result)
    if as_json:
        print_json(result)
        return
    for line in _lines(results, loaded):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(f"{out}: {agent.value}.scores.json", markup=False, soft_wrap=True)


def _chosen(loaded: Loaded, half: str | None, limit: int | None) -> Loaded:
    """The patients that are asked about."""
    from benchmarks.adapters.mtb.play import half_of
    from sage.core.errors import InputError

    cases = [case for case in loaded.cases if half in (None, half_of(case.id))][:limit]
    if not cases:
        raise InputError(f"--half {half}: no {loaded.track.value} patient is in it")
    names = {case.id for case in cases}
    absent = {case: files for case, files in loaded.absent.items() if case in names}
    return loaded.model_copy(update={"cases": tuple(cases), "absent": absent})


def _rows(
    loaded: Loaded, agent: AgentName, of: str | None, out: Path, weights: Path | None,
    mpp: float | None, drugs: Path | None, pubmed: bool, budget_usd: float | None,
) -> Iterator[tuple[str, Row]]:  # fmt: skip
    from benchmarks.adapters.mtb.desk import make_desk, read_drugs
    from benchmarks.adapters.mtb.play import play, replayed
    from sage.cli.console import err as console
    from sage.settings import load
    from sage_tumor_board.board.board import NEEDS, lacking

    if agent is AgentName.REPLAY:
        for model in (of,) if of is not None else loaded.said:
            for row in replayed(loaded, model):
                yield f"replay of {model}", row
        return
    settings = load(reasoner=agent.value)
    desk = make_desk(
        settings, drugs=read_drugs(drugs) if drugs else loaded.drugs, weights=weights, mpp=mpp,
        pubmed=pubmed,
    )  # fmt: skip
    if need := lacking(desk):
        told = ", ".join(f"{tool} ({how})" for tool, how in need.items())
        console.print(f"{loaded.track.value}: tools not there: {told}", markup=False,
                      soft_wrap=True)  # fmt: skip
    reasoner, name = _reasoner(settings, out, budget_usd)
    answers = out / f"{agent.value}.{loaded.track.value}.jsonl"
    tools = sorted(set(NEEDS) - set(need))  # with others it is another run
    for row in play(loaded, reasoner, f"{name}, {tools}", answers, desk=lambda _: desk):
        yield name, row


def _reasoner(settings: Settings, out: Path, budget_usd: float | None) -> tuple[Reasoner, str]:
    from agents.base import Resources
    from agents.reasoners.rules import RulesReasoner
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat, make_ontology
    from sage_tumor_board.board.agent import REPLIES, ROLE
    from sage_tumor_board.board.rules.policy import VERSION

    if settings.reasoner == "rules":
        return RulesReasoner(Resources(ontology=make_ontology())), f"rules {VERSION}"
    chat = settings.model_copy(update={"repairs": REPLIES - 1})
    reasoner = make_chat(chat, out, budget_usd=budget_usd, trace=Trace(out / "chat.trace.jsonl"))
    return reasoner, f"chat {reasoner.settings.models[ROLE].name}"


def _lines(results: list[Scored], loaded: list[Loaded]) -> Iterator[str]:
    for track in results:
        for row in track.groups:
            yield (
                f"{track.track}, {track.agent}, {row.group}: {row.accuracy:.1%} ({row.low:.1%} to"
                f" {row.high:.1%}) of {row.questions} questions, {row.patients} patients; always"
                f" {row.floor_letter}: {row.floor:.1%}; over it {row.over:+.1%}"
                f" ({row.over_low:+.1%} to {row.over_high:+.1%}); unanswered {row.unanswered};"
                f" files read {row.files_read:.1f} per question, hallucinated {row.hallucinated}"
            )
        yield (
            f"{track.track}, {track.agent}: the best letter of each type {track.floor_by_type:.1%};"
            f" tokens {track.groups[0].tokens}, {track.usd:.4f} USD, {track.seconds:.0f} s"
        )
    for item in loaded:
        absent = sum(len(names) for names in item.absent.values())
        files = sum(len(case.files) for case in item.cases)
        yield f"{item.track.value}: {absent} of {files} listed files not at hand"

"""What the benchmarks of multiple-choice questions share: who answers, and what is printed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from agents.base import Reasoner
    from benchmarks.adapters.multiple_choice import Answered, Answerer, Question, Scored
    from benchmarks.adapters.triple_review import Figure


class AgentName(StrEnum):
    """Who answers."""

    CHAT = "chat"
    RULES = "rules"


Agent = Annotated[AgentName, typer.Option(help="Who answers.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only the first questions.")]
Seed = Annotated[int, typer.Option(min=0, help="Of the order of the options.")]
Budget = Annotated[float | None, typer.Option(min=0, help="What a model may cost in all.")]
Replies = Annotated[
    Path,
    typer.Option(
        help="chat: folder of its replies, which hold the questions; a run that was cut short"
        " goes on there and pays no usable reply twice."
    ),
]


def make_reasoner(agent: AgentName, replies: Path, budget_usd: float | None) -> Reasoner:
    """The reasoner of the settings, or the rules."""
    from agents.base import Resources
    from agents.reasoners.rules import RulesReasoner
    from sage.core.llm.trace import Trace
    from sage.run.wiring import make_chat, make_ontology
    from sage.settings import load

    if agent is AgentName.RULES:
        return RulesReasoner(Resources(ontology=make_ontology()))
    trace = Trace(replies / "chat.trace.jsonl")
    return make_chat(load(reasoner="chat"), replies, budget_usd=budget_usd, trace=trace)


def ask(
    questions: Sequence[Question], answer: Answerer, seed: int, *, quiet: bool
) -> list[Answered]:
    """Ask all questions, with a bar."""
    from benchmarks.adapters.multiple_choice import answer_all
    from sage.cli.console import counting

    with counting("questions", quiet=quiet) as advance:
        return answer_all(
            questions, answer, seed, progress=lambda done, total: advance("questions", done, total)
        )


def spent(agent: AgentName, replies: Path) -> dict[str, Any]:
    """Calls, tokens, dollars and models of all replies in the folder, those not usable included."""
    from sage.core.llm.budget import charges

    rows = charges(replies / "spending.jsonl") if agent is AgentName.CHAT else []
    return {
        "calls": len(rows),
        "tokens": sum(
            row.get("prompt_tokens", 0) + row.get("completion_tokens", 0) for row in rows
        ),
        "usd": round(sum(row["usd"] for row in rows), 6),
        "models": sorted({str(row.get("model")) for row in rows}),
    }


def cost(paid: dict[str, Any]) -> str:
    """What was spent, in words."""
    by = f" by {', '.join(paid['models'])}" * bool(paid["models"])
    return f"{paid['calls']:,} calls{by}, {paid['tokens']:,} tokens, {paid['usd']:.4f} USD"


def in_words(figure: Figure | None) -> str:
    """A share with its interval."""
    if figure is None:
        return "none"
    return f"{figure.value:.1%} ({figure.low:.1%} to {figure.high:.1%})"


def lines_of(scored: Sequence[Scored]) -> list[str]:
    """One line for each group."""
    return [
        f"{row.group}: {row.questions} questions, right {in_words(row.accuracy)}, of the answered"
        f" {in_words(row.precision)}, answered {in_words(row.coverage)}; at random"
        f" {row.chance:.1%}; no usable reply {row.unusable}"
        for row in scored
    ]


def tell(lines: Iterable[str]) -> None:
    """Print lines that may hold words of a benchmark."""
    from sage.cli.console import out

    for line in lines:
        out.print(line, markup=False, highlight=False, soft_wrap=True)

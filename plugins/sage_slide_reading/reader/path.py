"""Path of a reading from its trace: visited regions, descriptions, and reasons for each move.

It works for both running and finished readings, and needs no slide.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field, ValidationError

from agents.core.base import View
from sage.core.errors import InputError
from sage.core.llm.repair import describe_problems
from sage.core.llm.trace import TraceLine
from sage.core.printable import one_line
from sage_slide_reading.reader.algorithm import AGENT
from sage_slide_reading.reader.types import Described, Reading, Words

MOST_VISITS = 5000


class Visit(View):
    """A visit to a region and its consequences."""

    round: int
    looked_for: Words
    relevance: float | None
    seen: Described
    then: tuple[Words, ...] = Field(default=(), description="Results until the next look")


class Path(View):
    """A reading's path over its slide, to the extent covered by its trace."""

    visits: tuple[Visit, ...]
    before: tuple[Words, ...] = Field(description="Text before the first look")
    reading: Reading | None = Field(default=None, description="Set once there is an answer")
    problem: str = Field(default="", description="Reason for ending without an answer")


def path_of(lines: Iterable[TraceLine]) -> Path:
    """Extract the path from a trace, or the last path if there are several readings.

    Raises
    ------
    InputError
        If the trace is not from a reading, or its entries are inconsistent.
    """
    own = [line for line in lines if line.agent == AGENT]
    if not own:
        raise InputError("this trace does not contain a reading")
    own = [line for line in own if line.episode == own[-1].episode]
    before: list[str] = []
    visits: list[dict[str, Any]] = []
    then = before
    asked: dict[str, Any] = {}
    round_, looked_for = 0, ""
    relevance: dict[str, float] = {}
    reading: Reading | None = None
    problem = ""
    try:
        for line in own:
            result = line.result
            if line.kind == "end":
                problem = one_line(line.error or "")[:1000]
                reading = Reading.model_validate(line.output) if line.output else None
            elif line.kind != "tool":
                continue
            elif line.error:
                then.append(f"refused: {one_line(line.error)}"[:2000])
            elif line.tool == "navigate":
                asked = line.arguments
                round_ += asked["among"] == "unseen"
                looked_for = one_line(asked["query"])[:1000]
                relevance = dict(zip(result["selected"], result["relevance"], strict=True))
            elif line.tool == "describe":
                for place, item in enumerate(result):
                    seen = Described.model_validate(item)
                    visit: dict[str, Any] = {
                        "round": round_, "looked_for": looked_for, "seen": seen,
                        "relevance": relevance.get(seen.region.id), "then": [],
                    }  # fmt: skip
                    if place:
                        visits[-1]["then"].append("the next region chosen for this round")
                    visits.append(visit)
                    then = visit["then"]
            else:
                then.extend(words[:2000] for words in _words(line.tool or "", result))
            if len(visits) > MOST_VISITS:
                raise InputError(f"a path with more than {MOST_VISITS:,} views cannot be shown")
        return Path(
            visits=tuple(Visit.model_validate(visit) for visit in visits),
            before=tuple(before), reading=reading, problem=problem,
        )  # fmt: skip
    except ValidationError as error:
        raise InputError(
            f"this trace does not match a reading: {describe_problems(error)}"
        ) from None
    except (KeyError, TypeError, ValueError, AttributeError, IndexError):
        raise InputError("this trace does not match a reading") from None


def _words(tool: str, result: Any) -> list[str]:
    """Describe the result of an Algorithm 1 move in lines of text."""
    if tool in ("predict", "synthesize"):
        before = "answer from everything that was seen" if tool == "synthesize" else "answer so far"
        answer = "none" if result["answer"] is None else result["answer"]
        return [one_line(f"{before}: {answer}. {result['thinking_steps']}")]
    if tool == "reflect":
        return [one_line(f"sufficient: {result['sufficient']}. {result['reason']}")]
    if tool == "missing":
        how = "zoom in" if result["zoom"] else "explore"
        why = next((item["zoom_reason"] for item in result["items"] if item["zoom_reason"]), "")
        return [one_line(f"missing: {result['query']}; {how}{f': {why}' if why else ''}")]
    if tool == "at_once":
        return [
            *_words("predict", result["prediction"]),
            *_words("reflect", result["reflection"]),
            *_words("missing", result["missing"]),
        ]
    if tool == "magnify":
        return [f"divided into {int(result['patches'])} patches at {result['magnification']:.3g}x"]
    if tool == "person":
        return [one_line(f"a person: {text}") for text in result]
    return []

"""`read_findings` over the registry: questions to the default eyes, findings as typed maps."""

from __future__ import annotations

import dataclasses
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from mcp_servers.context import ToolContext
from mcp_servers.describe import check_card
from mcp_servers.pathology.common import SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import ATTRIBUTE, OutputName, Resources, tool
from sage.core.errors import InputError
from sage_slide_reading.reader.tool import read_slide_tool
from sage_slide_reading.reader.types import Options, Question

SPEC = getattr(read_slide_tool, ATTRIBUTE)
ANSWERS = "answers.json"


class ReadFindingsInput(SlideInput):
    """Questions for every slide of a cohort."""

    questions: list[Annotated[str, Field(min_length=3, max_length=1000)]] = Field(
        min_length=1,
        max_length=8,
        description="Questions in plain words, each about a different concept",
    )
    patch_px: int = Field(default=256, ge=64, le=2048, description="Side of a patch, in pixels")


class Answered(BaseModel):
    """Answer to a question on a slide."""

    question: str
    answer: str | None = Field(description="None if the eyes abstain; the reasoning explains why")
    reasoning: str
    regions: int


class ReadFindingsResult(SlideResult):
    """Maps and answers of a slide."""

    statement: str = Field(description="What the eyes are, and their limits")
    maps: OutputName = Field(description="maps.json in the folder of typed maps")
    files: list[OutputName]
    answers: OutputName = Field(description="Question, answer and reasoning, as JSON")
    abstained: int
    regions: int
    high_power_share: float = Field(
        description="Largest share of the tissue read for one question, 0 to 1"
    )


def check_questions(texts: list[str]) -> list[Question]:
    """Parse questions that the computed eyes can answer, each about a different concept.

    Raises
    ------
    InputError
        If a question cannot be answered; the message names it.
    """
    from sage.core.llm.turns import problems_of
    from sage_slide_reading.reader.maps import concept_of

    found: dict[str, Question] = {}
    for text in texts:
        try:
            question = Question(text=text)
        except ValidationError as error:
            raise InputError(f'"{text[:80]}": {problems_of(error)}') from None
        concept = concept_of(question)
        if concept in found:
            raise InputError(
                f'"{text}" and "{found[concept].text}" both ask about {concept}; ask only one of '
                "them"
            )
        found[concept] = question
    return list(found.values())


@tool(
    "read_findings",
    "reading",
    "1.0.0",
    "Read a slide for several questions and store the findings of every inspected region as "
    "typed maps, for measurements and variables of a cohort.",
    resources=Resources(cpu=1, memory_mb=1024, seconds_per_item=40.0),
    validity=SPEC.validity,
    fingerprint=lambda given: f"{SPEC.name} {SPEC.version}",
    title="Findings of a reading as typed maps",
)
def read_findings(given: ReadFindingsInput, context: ToolContext) -> ReadFindingsResult:
    """Read the slide once per question, given only the slide and the questions."""
    from mcp_servers.measures.maps import MANIFEST, write_maps
    from sage.core.files import write_json
    from sage_slide_reading.reader.algorithm import read_slide
    from sage_slide_reading.reader.maps import findings_of
    from sage_slide_reading.reader.open_eyes import computed_eyes
    from sage_slide_reading.reader.scope import Scope

    questions = check_questions(given.questions)
    slide = open_slide(given, context)
    options = Options(patch_px=given.patch_px)
    readings = []
    for number, question in enumerate(questions):
        context.progress(number / len(questions), question.text)
        scope = Scope(slide, options)
        scope.watch = lambda _: context.check_cancelled()
        readings.append(read_slide(scope, computed_eyes(), question, options))
    outside = check_card(SPEC, {"warnings": [], "mpp": slide.mpp}).get("warnings", [])
    outside += [slide.mpp_conflict] if slide.mpp_conflict else []
    maps = dataclasses.replace(findings_of(readings, scope.window()), outside_card=tuple(outside))
    folder = context.roots.write_path(f"maps/{MANIFEST}").parent
    write_maps(maps, folder)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    for name in names:
        context.output(f"maps/{name}")
    answers = [
        Answered(
            question=reading.question.text,
            answer=reading.answer,
            reasoning=reading.reasoning,
            regions=len(reading.regions()),
        )
        for reading in readings
    ]
    with context.writing(ANSWERS) as path:
        write_json(path, [answer.model_dump(mode="json") for answer in answers])
    return ReadFindingsResult(
        **of_slide(slide),
        warnings=[*slide.warnings, *outside],
        statement=readings[0].statement[:2000],
        maps=f"maps/{MANIFEST}",
        files=[f"maps/{name}" for name in names],
        answers=ANSWERS,
        abstained=sum(answer.answer is None for answer in answers),
        regions=sum(answer.regions for answer in answers),
        high_power_share=max(reading.read.high_power_share for reading in readings),
    )

"""Registry and MCP tools: `read_slide`, `read_findings` and `predict_regions`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.describe import check_card
from mcp_servers.pathology.common import SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import ATTRIBUTE, InputPath, OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage_slide_reading.reader.types import (
    Described,
    Options,
    Proposed,
    Question,
    make_question,
)

if TYPE_CHECKING:
    from mcp_servers.slides.slide import Slide
    from sage_slide_reading.reader.types import Reading

ANSWERS = "answers.json"


class ReadSlideInput(SlideInput):
    """A question about a slide."""

    question: str = Field(min_length=3, max_length=1000, description="Question in plain words")
    answers: list[Annotated[str, Field(max_length=200)]] = Field(
        default_factory=list, max_length=26, description="Options of a multiple-choice question"
    )
    magnification: float = Field(
        default=5.0, gt=0, le=40, description="Magnification of the first round"
    )
    patch_px: int = Field(default=256, ge=64, le=2048, description="Side of a patch, in pixels")
    rounds: int = Field(default=5, ge=1, le=20, description="Maximum number of rounds")


class ReadSlideResult(SlideResult):
    """The answer, its basis, and the reading's files."""

    answer: str | None = Field(description="None if the eyes abstain; the reasoning explains why")
    reasoning: str
    statement: str = Field(description="What the eyes are, and their limits")
    rounds: int
    regions: list[Described] = Field(description="The last 60 of the inspected regions")
    rests_on: list[str] = Field(description="IDs of the regions on which the answer is based")
    high_power_share: float = Field(
        description="Share of the tissue read at a finer magnification than the first round, 0 to 1"
    )
    reading: OutputName
    geojson: OutputName = Field(description="Regions, for QuPath and the slides page")


@tool(
    "read_slide",
    "reading",
    "2.0.0",
    "Answer a question about a slide by looking at it: low power, reflection, closer look.",
    resources=Resources(cpu=1, memory_mb=1024, seconds_per_item=20.0),
    validity=Validity(
        stain="H&E",
        mpp=(0.15, 1.25),
        organ="solid tumors",
        training_data="nuclei: see the tool nuclei; thresholds were chosen on eight painted "
        "slides and twelve painted lymph nodes, and with knowledge of 43 questions on real "
        "images",
        tcga_overlap="thresholds were chosen with knowledge of fields from 12 TCGA cases",
        known_failures=(
            "clear cells (kidney) are called stroma or lymphocytes, sparse stroma is called "
            "necrosis: of 37 questions on real images that were not used to choose thresholds, "
            "19 were answered correctly",
            "normal epithelium is called tumor-like; nuclear debris can be mistaken for "
            "lymphocytes, keratin for necrosis, clefts for glands",
            "small-cell carcinoma or lymphoma in a lymph node may be mistaken for germinal centers",
            "type, grade, receptor status and molecular subtype: it abstains",
            "mitosis-like figures are dark irregular nuclei: pyknosis, pigment, keratin and ink "
            "are counted too; nine figures were counted around a hair follicle of normal skin",
        ),
        accuracy="see docs/reading.md: painted slides not used in development, and real images",
    ),
    title="Answer a question about a slide",
)
def read_slide_tool(given: ReadSlideInput, context: ToolContext) -> ReadSlideResult:
    """Answer a question about a slide."""
    from mcp_servers.pathology.nuclei_net.model import shipped_network
    from sage_slide_reading.reader.computed import NETWORK_MPP, NUCLEI_FROM
    from sage_slide_reading.reader.export import moving_view, write_reading
    from sage_slide_reading.reader.scope import ONE_UM

    slide = open_slide(given, context)
    options = Options(
        magnification=given.magnification, patch_px=given.patch_px, rounds=given.rounds
    )
    question = make_question(given.question, given.answers)
    folder = f"{slide.name}.reading"
    place = context.output(folder)
    with moving_view(place):
        reading = _read(slide, question, options, context)
        names = write_reading(reading, place)
    regions = [seen for step in reading.steps for seen in step.seen]
    finest = max((seen.region.magnification for seen in regions), default=0.0)
    learned = finest >= max(NUCLEI_FROM, ONE_UM / NETWORK_MPP) and shipped_network() is not None
    return ReadSlideResult(
        **of_slide(slide),
        method="learned" if learned else "classical",
        warnings=list(slide.warnings),
        answer=reading.answer,
        reasoning=reading.reasoning,
        statement=reading.statement,
        rounds=reading.rounds,
        regions=[seen.model_copy(update={"findings": ()}) for seen in regions[-60:]],
        rests_on=list(reading.rests_on),
        high_power_share=reading.read.high_power_share,
        **{kind: f"{folder}/{name}" for kind, name in names.items()},
    )


def _read(slide: Slide, question: Question, options: Options, context: ToolContext) -> Reading:
    from sage_slide_reading.reader.algorithm import read_slide
    from sage_slide_reading.reader.eyes import computed_eyes
    from sage_slide_reading.reader.scope import Scope

    scope = Scope(slide, options)
    scope.watch = lambda _: context.check_cancelled()
    return read_slide(scope, computed_eyes(), question, options)


SPEC = getattr(read_slide_tool, ATTRIBUTE)


class ReadFindingsInput(SlideInput):
    """Questions to ask about every slide in a cohort."""

    questions: list[Annotated[str, Field(min_length=3, max_length=1000)]] = Field(
        min_length=1,
        max_length=8,
        description="Questions in plain words, each about a different concept",
    )
    patch_px: int = Field(default=256, ge=64, le=2048, description="Side of a patch, in pixels")


class ReadFindingsResult(SlideResult):
    """A slide's maps and answers."""

    statement: str = Field(description="What the eyes are, and their limits")
    maps: OutputName = Field(description="maps.json in the folder of typed maps")
    files: list[OutputName]
    answers: OutputName = Field(description="Question, answer and reasoning, as JSON")
    abstained: int
    regions: int
    high_power_share: float = Field(
        description="Largest share of the tissue read for one question, 0 to 1"
    )


def check_questions(texts: Sequence[str]) -> list[Question]:
    """Parse questions that the computed backend can answer, each about a different concept.

    Raises `InputError` if a question cannot be answered; the message names it.
    """
    from sage_slide_reading.reader.maps import concept_of

    found: dict[str, Question] = {}
    for question in map(make_question, texts):
        concept = concept_of(question)
        if concept in found:
            raise InputError(
                f'"{question.text}" and "{found[concept].text}" both ask about {concept}; ask only '
                "one of them"
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
    """Read a slide once per question, using only the slide and the questions."""
    from mcp_servers.measures.maps import MANIFEST, write_maps
    from sage.core.files import write_json
    from sage_slide_reading.reader.maps import findings_of
    from sage_slide_reading.reader.scope import Scope

    questions = check_questions(given.questions)
    slide = open_slide(given, context)
    options = Options(patch_px=given.patch_px)
    readings = []
    for number, question in enumerate(questions):
        context.progress(number / len(questions), question.text)
        readings.append(_read(slide, question, options, context))
    outside = check_card(SPEC, {"warnings": [], "mpp": slide.mpp}).get("warnings", [])
    outside += [slide.mpp_conflict] if slide.mpp_conflict else []
    maps = dataclasses.replace(
        findings_of(readings, Scope(slide, options).window()), outside_card=tuple(outside)
    )
    folder = context.roots.write_path(f"maps/{MANIFEST}").parent
    write_maps(maps, folder)
    names = sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))
    for name in names:
        context.output(f"maps/{name}")
    answers = [
        {"question": reading.question.text, "answer": reading.answer,
         "reasoning": reading.reasoning, "regions": len(reading.regions())}
        for reading in readings
    ]  # fmt: skip
    with context.writing(ANSWERS) as path:
        write_json(path, answers)
    return ReadFindingsResult(
        **of_slide(slide),
        warnings=[*slide.warnings, *outside],
        statement=readings[0].statement[:2000],
        maps=f"maps/{MANIFEST}",
        files=[f"maps/{name}" for name in names],
        answers=ANSWERS,
        abstained=sum(reading.answer is None for reading in readings),
        regions=sum(len(reading.regions()) for reading in readings),
        high_power_share=max(reading.read.high_power_share for reading in readings),
    )


class PredictRegionsInput(SlideInput):
    """A slide and the behavior model to apply."""

    model: InputPath | None = Field(
        default=None,
        description="Folder written by `sage reading train`; None: the bundled model",
    )
    behavior: str | None = Field(
        default=None,
        max_length=500,
        description="Task whose behavior to use, if the model has several",
    )
    most: int | None = Field(
        default=None,
        ge=1,
        le=200,
        description="Maximum number of regions; None: as many as readers visit",
    )


class PredictRegionsResult(SlideResult):
    """Proposed regions, best first."""

    behavior: str
    behaviors: list[str] = Field(description="All tasks of the model")
    regions: list[Proposed]
    use: str = Field(description="What the model is, and its limits")
    trained_on: str
    geojson: OutputName


@tool(
    "predict_regions",
    "reading",
    "2.0.0",
    "Propose where a reader of recorded sessions would look on a slide: boxes, scores, "
    "magnifications.",
    resources=Resources(cpu=1, memory_mb=1024, seconds_per_item=3.0),
    validity=Validity(
        stain="H&E",
        mpp=(0.1, 100.0),
        organ="that of the recorded sessions; for the bundled model: simulated lymph nodes",
        training_data="recorded sessions; for the bundled model: scripted readers of simulated "
        "lymph nodes",
        tcga_overlap="none in the bundled model",
        known_failures=(
            "it learned where readers look, not what disease is",
            "slides that look different from those of its sessions",
        ),
        accuracy="on the model's card, measured in training on slides of other patients; for "
        "the bundled model, against scripted readers of simulated nodes, not against a person",
    ),
    title="Propose where a reader would look",
)
def predict_regions_tool(given: PredictRegionsInput, context: ToolContext) -> PredictRegionsResult:
    """Propose regions on a slide for a behavior."""
    from sage_slide_reading.behavior.model import BehaviorModel, write_regions

    model = BehaviorModel(context.input(given.model, "folder") if given.model else None)
    task = given.behavior
    if task is None and given.model is None:
        task = model.behaviors[0]
    place = model.card.behavior(task)
    slide = open_slide(given, context)
    regions = model.predict(slide, task, given.most)
    name = f"{slide.name}.regions.geojson"
    write_regions(regions, context.output(name))
    return PredictRegionsResult(
        **of_slide(slide),
        method="learned",
        warnings=list(slide.warnings),
        behavior=model.behaviors[place],
        behaviors=list(model.behaviors),
        regions=regions,
        use=model.card.use,
        trained_on=model.card.training_data,
        geojson=name,
    )

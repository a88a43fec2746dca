"""`read_slide` for the registry and MCP: puts a question to the default eyes."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from mcp_servers.context import ToolContext
from mcp_servers.pathology.common import SlideInput, SlideResult, of_slide, open_slide
from mcp_servers.spec import OutputName, Resources, Validity, tool
from sage.core.errors import InputError
from sage_slide_reading.reader.types import Box, Options, Question


class ReadSlideInput(SlideInput):
    """A question about a slide."""

    question: str = Field(min_length=3, max_length=1000, description="Question in plain words")
    answers: list[Annotated[str, Field(max_length=200)]] = Field(
        default_factory=list, max_length=26, description="Options of a multiple-choice question"
    )
    places: dict[str, Box] = Field(
        default_factory=dict, max_length=26,
        description="Areas named in the options: x, y, width, height in level-0 pixels",
    )  # fmt: skip
    magnification: float = Field(
        default=5.0, gt=0, le=40, description="Magnification of the first round"
    )
    patch_px: int = Field(default=256, ge=64, le=2048, description="Side of a patch, in pixels")
    rounds: int = Field(default=5, ge=1, le=20, description="Maximum number of rounds")


class RegionRead(BaseModel):
    """An inspected region; x, y, width, height in level-0 pixels."""

    id: str
    round: int
    magnification: float
    x: int
    y: int
    width: int
    height: int
    seen: str
    answer_rests_on_it: bool


class ReadSlideResult(SlideResult):
    """The answer, its basis, and the files of the reading."""

    answer: str | None = Field(description="None if the eyes abstain; the reasoning explains why")
    reasoning: str
    statement: str = Field(description="What the eyes are, and their limits")
    rounds: int
    regions: list[RegionRead] = Field(description="The last 60 of the inspected regions")
    high_power_share: float = Field(
        description="Share of the tissue read at a finer magnification than the first round, 0 to 1"
    )
    reading: OutputName
    steps: OutputName = Field(description="JSON lines, one per round")
    trace: OutputName = Field(description="Every move, for replay")
    geojson: OutputName = Field(description="Regions and path, for QuPath and the slides page")
    conversation: OutputName


@tool(
    "read_slide",
    "reading",
    "1.4.0",
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
    from sage.core.llm.trace import Trace
    from sage.core.llm.turns import problems_of
    from sage_slide_reading.reader.algorithm import read_slide
    from sage_slide_reading.reader.computed import NETWORK_MPP, NUCLEI_FROM
    from sage_slide_reading.reader.export import navigating, write_reading
    from sage_slide_reading.reader.open_eyes import computed_eyes
    from sage_slide_reading.reader.scope import ONE_UM, Scope

    slide = open_slide(given, context)
    options = Options(
        magnification=given.magnification, patch_px=given.patch_px, rounds=given.rounds
    )
    try:
        question = Question(
            text=given.question, options=tuple(given.answers), places=dict(given.places)
        )
    except ValidationError as error:
        said = problems_of(error).replace("reply: Value error,", "answers:")
        raise InputError(f"read_slide: {said}") from None
    folder = f"{slide.name}.reading"
    place = context.output(folder)
    trace = place / "trace.jsonl"
    with navigating(place, f"read_slide, asked: {given.question[:80]}"):
        trace.unlink(missing_ok=True)
        scope = Scope(slide, options)
        scope.watch = lambda _: context.check_cancelled()
        reading = read_slide(scope, computed_eyes(), question, options, trace=Trace(trace))
        names = write_reading(reading, place)
    regions = [
        RegionRead(
            id=seen.region.id,
            round=step.round,
            magnification=seen.region.magnification,
            **seen.region.box.model_dump(),
            seen=seen.text,
            answer_rests_on_it=seen.region.id in reading.rests_on,
        )
        for step in reading.steps
        for seen in step.seen
    ]
    finest = max((seen.magnification for seen in regions), default=0.0)
    learned = finest >= max(NUCLEI_FROM, ONE_UM / NETWORK_MPP) and shipped_network() is not None
    return ReadSlideResult(
        **of_slide(slide),
        method="learned" if learned else "classical",
        warnings=list(slide.warnings),
        answer=reading.answer,
        reasoning=reading.reasoning,
        statement=reading.statement,
        rounds=reading.rounds,
        regions=regions[-60:],
        high_power_share=reading.read.high_power_share,
        trace=f"{folder}/trace.jsonl",
        **{kind: f"{folder}/{name}" for kind, name in names.items()},
    )

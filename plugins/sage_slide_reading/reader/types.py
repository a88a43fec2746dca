"""Types used in a reading: regions, findings, descriptions, predictions, and steps."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, ValidationError, field_validator, model_validator

from agents.core.base import View
from mcp_servers.slides.geometry import Polygon
from sage.core.errors import InputError, explain_validation
from sage.core.printable import count_noun

Words = Annotated[str, Field(max_length=2000)]
Yes = Literal["Yes", "No"]
FindingName = Literal[
    "cellularity", "lymphoid_share", "lymphoid_density", "nuclear_area", "pleomorphism",
    "epithelial_share", "mitosis_like", "necrosis_share", "stroma_share", "gland_share",
    "tumor_share", "edge_distance",
]  # fmt: skip
UNITS: dict[FindingName, tuple[str, str]] = {
    "cellularity": ("nuclei/mm²", "1/mm²"),
    "lymphoid_share": ("of nuclei", "1"),
    "lymphoid_density": ("lymphocyte-like nuclei/mm²", "1/mm²"),
    "nuclear_area": ("µm² (median)", "µm²"),
    "pleomorphism": ("robust CV of nuclear area", "1"),
    "epithelial_share": ("of nuclei", "1"),
    "mitosis_like": ("figures", "1"),
    "necrosis_share": ("of tissue", "1"),
    "stroma_share": ("of tissue", "1"),
    "gland_share": ("of tissue", "1"),
    "tumor_share": ("of tissue", "1"),
    "edge_distance": ("µm to the tissue's edge", "µm"),
}
"""Unit of each finding in words, and as the unit of a column."""


def rectangle(x: float, y: float, width: float, height: float) -> Polygon:
    """Return a rectangle with its upper left corner at (x, y)."""
    return Polygon(np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]]))


class Box(View):
    """A rectangle in level-0 pixels; x and y are its upper left corner."""

    x: int
    y: int
    width: int = Field(ge=1)
    height: int = Field(ge=1)

    @property
    def center(self) -> tuple[float, float]:
        """Coordinates x and y of the center, in level-0 pixels."""
        return self.x + self.width / 2, self.y + self.height / 2

    def is_within(self, width: int, height: int) -> bool:
        """Return True if the box is on a slide of this size."""
        return (
            self.x >= 0
            and self.y >= 0
            and self.x + self.width <= width
            and self.y + self.height <= height
        )


def parse_box(text: str) -> Box | None:
    """Parse X,Y,W,H in level-0 pixels; None if it is not a rectangle."""
    try:
        x, y, width, height = map(int, text.split(","))
        return Box(x=x, y=y, width=width, height=height)
    except ValueError:
        return None


class Region(View):
    """A patch of a slide: its position in level-0 pixels and µm, and its magnification.

    `parent` is the lower-power patch from which it was divided.
    """

    id: str = Field(max_length=80)
    box: Box
    um: tuple[float, float, float, float] = Field(description="x, y, width, height in µm")
    magnification: float = Field(gt=0, description="5 is 5x: 2 µm per pixel")
    parent: str | None = None


class Finding(View):
    """A quantity measured in a region; `points` are the level-0 pixels of the counted objects."""

    name: FindingName
    value: float
    unit: str
    points: tuple[tuple[float, float], ...] = ()

    def describe(self) -> str:
        """Describe the finding by name, value, and unit."""
        name = self.name.replace("_", " ")
        if self.unit.startswith("of "):
            return f"{name} {self.value:.0%} {self.unit}"
        if self.name == "mitosis_like":
            return count_noun(round(self.value), "mitosis-like figure")
        if self.name == "edge_distance" and self.value < 0:
            return "no tumor-like tissue to measure the distance to the edge"
        figure = f"{self.value:,.0f}" if self.value >= 1000 else f"{self.value:.3g}"
        return f"{name} {figure} {self.unit}"


class Described(View):
    """A region's description, as text and, if the backend measures, as numbers.

    `edited` means that a person wrote the text.
    """

    region: Region
    text: Words
    guided: bool = Field(default=False, description="Described with knowledge of the question")
    findings: tuple[Finding, ...] = ()
    edited: bool = False

    def value(self, name: FindingName) -> float | None:
        """Return the value of the quantity with this name, if it was measured."""
        return next((found.value for found in self.findings if found.name == name), None)


class Question(View):
    """A question about a slide, either open or with options."""

    text: str = Field(min_length=3, max_length=1000)
    options: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=26
    )

    @model_validator(mode="after")
    def _options_differ(self) -> Self:
        if len(self.options) == 1:
            raise ValueError("a question with options needs at least two options")
        if len({plain(option) for option in self.options}) < len(self.options):
            raise ValueError("two options are identical")
        return self

    def chosen(self, answer: str | None) -> str | None:
        """Return the option that an answer names by text or letter, or None."""
        if answer is None or not self.options:
            return answer
        said = plain(answer)
        for place, option in enumerate(self.options):
            letter = chr(ord("a") + place)
            if said in (plain(option), letter, f"{letter} {plain(option)}"):
                return option
        return None


def make_question(text: str, options: Sequence[str] = ()) -> Question:
    """Build a question from user input.

    Raises `InputError` if the question or its options are invalid.
    """
    try:
        return Question(text=text, options=tuple(options))
    except ValidationError as error:
        raise InputError(f"question: {explain_validation(error)}") from None


def plain(text: str) -> str:
    """Reduce text to lower-case words and numbers."""
    return " ".join(re.findall(r"[^\W_]+", text.lower()))


class Prediction(View):
    """The Executor's answer: `{"answer": ..., "thinking_steps": ...}`; null if it abstains."""

    answer: Annotated[str, Field(max_length=1000)] | None
    thinking_steps: Words
    regions: tuple[str, ...] = Field(
        default=(), description="IDs of the regions on which it is based"
    )

    @field_validator("regions")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(names))


class Reflection(View):
    """Judgment of whether the descriptions support the answer: `{"sufficient": "Yes"}`."""

    sufficient: Yes
    reason: Words = ""


class Missing(View):
    """Missing information at a place, with the fields from the paper's figure 3."""

    zoom_to: float | None = Field(default=None, ge=1, le=80, description="10 is 10x")
    location: tuple[int, int] | None = Field(
        default=None, description="Upper left corner, in level-0 pixels"
    )
    missing_info: Words
    zoom_recommendation: Yes
    zoom_reason: Words = ""

    @field_validator("zoom_to", mode="before")
    @classmethod
    def _as_printed(cls, power: object) -> object:
        """Return the magnification as in the figure: "20x"."""
        return power.strip().removesuffix("x") if isinstance(power, str) else power


class MissingInfo(View):
    """Missing information by place; the most frequent recommendation decides the next move."""

    items: tuple[Missing, ...] = Field(min_length=1, max_length=20)

    @property
    def zoom(self) -> bool:
        """True if at least half of the places need a closer look."""
        return 2 * sum(item.zoom_recommendation == "Yes" for item in self.items) >= len(self.items)

    @property
    def query(self) -> str:
        """I_t in Algorithm 1: the query for the Navigator's next search."""
        return "; ".join(dict.fromkeys(item.missing_info for item in self.items))[:1000]

    @property
    def magnification(self) -> float | None:
        """Return the finest requested magnification."""
        return max((item.zoom_to for item in self.items if item.zoom_to), default=None)


class State(View):
    """S_t as the Executor sees it: the descriptions so far, and how the patches were chosen.

    `screened` means that every patch was ranked by its appearance, so anything that the
    highest-ranked patches do not show is not on the slide.
    """

    question: Question
    slide: str
    size: tuple[int, int] = Field(description="Width and height, in level-0 pixels")
    native: float = Field(description="Finest magnification of the slide")
    round: int
    seen: tuple[Described, ...]
    screened: bool
    last_round: bool


NO_ANSWER = Reflection(sufficient="No", reason="there is no answer yet")


class Options(View):
    """Algorithm 1's parameters, with the paper's values as defaults."""

    rounds: int = Field(default=5, ge=1, le=20, description="Maximum number of rounds T")
    first_share: float = Field(default=0.10, gt=0, le=1, description="k1 = ceil(0.1 N)")
    later_share: float = Field(default=0.05, gt=0, le=1, description="kt = ceil(0.05 N)")
    magnification: float = Field(
        default=5.0, gt=0, le=40, description="Magnification of the first round"
    )
    patch_px: int = Field(default=256, ge=64, le=2048, description="Side of a patch, in pixels")
    guided: int = Field(
        default=5, ge=0, description="Number of patches described with knowledge of the question"
    )
    finest_um: float = Field(default=120.0, ge=20, description="Minimum width of a finer patch")


Action = Literal["look", "zoom", "explore"]


class Step(View):
    """A round: its regions, descriptions, judgment, and next step."""

    round: int
    action: Action
    looked_for: Words
    magnification: float
    seen: tuple[Described, ...]
    relevance: tuple[float, ...]
    predicted: Prediction | None = None
    reflected: Reflection | None = None
    missing: MissingInfo | None = None
    why_next: Words = ""
    interventions: tuple[Words, ...] = ()


class Proposed(View):
    """A region that a guide proposes, in level-0 pixels; it may extend beyond the slide."""

    x: float
    y: float
    w: float = Field(gt=0)
    h: float = Field(gt=0)
    score: float = Field(description="0 to 1, for ranking; not a probability of disease")
    bin: float = Field(gt=0, description="Standard magnification: 5 is 5x")
    order: float = Field(default=0.0, description="From 0, the first look, to 1, the last")


class Guidance(View):
    """The guide that proposed a reading's regions, with its behavior and the reason."""

    guide: str
    behavior: str
    why: Words
    visits: tuple[Proposed, ...]


class PixelsRead(View):
    """Area read, as fractions of the tissue."""

    regions: int = Field(description="Number of described regions")
    overview_share: float = Field(description="Share of tissue read at the first magnification")
    high_power_share: float = Field(
        description="Share of tissue read at a finer magnification, to rank or describe"
    )


class Reading(View):
    """An answer with its reasons and every step that led to it."""

    slide: str
    mpp: float
    size: tuple[int, int] = Field(description="Width and height of the slide, in level-0 pixels")
    question: Question
    eyes: str
    statement: str = Field(description="What the eyes are, and their limits")
    options: Options
    guidance: Guidance | None = Field(default=None, description="Only for Pathologist-o3")
    answer: str | None = Field(description="None if it abstains")
    reasoning: Words
    rests_on: tuple[str, ...] = Field(description="IDs of the regions on which the answer is based")
    steps: tuple[Step, ...]
    read: PixelsRead

    @property
    def rounds(self) -> int:
        """Number of rounds until the answer."""
        return max((step.round for step in self.steps), default=0)

    def regions(self) -> dict[str, Described]:
        """Last description of each described region, by region."""
        return {seen.region.id: seen for step in self.steps for seen in step.seen}

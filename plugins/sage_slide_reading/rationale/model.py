"""Rationales drafted by a vision-language model through the chat client."""

from __future__ import annotations

import base64
import io
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field

from agents.core.base import Agent, Reasoner, Resources, Role, View, prompt_file
from sage_slide_reading.rationale.draft import Place
from sage_slide_reading.reader.model import IMAGE_PX, field_png
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.sessions.drafts import DraftedBy, Rationale, sentences

THUMBNAIL_PX = 768
STATEMENT = (
    "Drafted by a vision-language model from the thumbnail, the region and a crop of its center; "
    "not by a pathologist. Not for diagnosis."
)
Text = Annotated[str, Field(min_length=10, max_length=3000)]


class PlaceShown(View):
    """Input of the model about a place."""

    task: str
    doing: str
    command: str
    width_um: float
    height_um: float
    crop_um: float


class Drafted(View):
    """The model's reply."""

    thumbnail_impression: Text
    why_zoom: Text
    findings: Text


def _nothing(given: PlaceShown, resources: Resources) -> Drafted:
    none = "No model was asked."
    return Drafted(thumbnail_impression=none, why_zoom=none, findings=none)


def draft_problems(given: PlaceShown, output: Drafted) -> list[str]:
    """List panels that are not sentences a reviewer could delete one by one."""
    found = []
    for name, text in output:
        parts = sentences(text)
        if len(parts) > 12 or any(len(part) > 600 for part in parts):
            found.append(f"{name}: at most twelve sentences, each shorter than 600 characters")
    return found


RATIONALE = Agent(
    name="slide_rationale", role=Role.HIGH, reads=PlaceShown, returns=Drafted,
    prompt=prompt_file(__file__, "rationale.md"), rule=_nothing,
    check=draft_problems,
)  # fmt: skip


@dataclass
class ModelWriter:
    """Shows each place to a model with vision."""

    reasoner: Reasoner
    model: str | None = None
    drafted_by: DraftedBy = "model"
    statement: str = STATEMENT

    def write(self, scope: Scope, place: Place, task: str) -> Rationale:
        """Return the model's text, split at sentence boundaries."""
        given = PlaceShown(
            task=task or "not stated",
            doing=place.doing,
            command=place.action.command,
            width_um=place.region.um[2],
            height_um=place.region.um[3],
            crop_um=place.cytology.um[2],
        )
        pictures = (
            thumbnail_png(scope, place),
            field_png(scope, place.region, IMAGE_PX),
            field_png(scope, place.cytology, IMAGE_PX),
        )
        agent = replace(RATIONALE, images=lambda _: pictures)
        said = self.reasoner.ask(agent, given).output
        return Rationale(
            thumbnail_impression=sentences(said.thumbnail_impression),
            why_zoom=sentences(said.why_zoom),
            findings=sentences(said.findings),
        )


def thumbnail_png(scope: Scope, place: Place) -> str:
    """Render the slide with a box around the place, as base64 PNG."""
    import cv2
    from PIL import Image

    image = np.ascontiguousarray(scope.slide.thumbnail(THUMBNAIL_PX))
    scale = image.shape[1] / scope.slide.width
    box = place.region.box
    corners = [
        (round(x * scale), round(y * scale))
        for x, y in ((box.x, box.y), (box.x + box.width, box.y + box.height))
    ]
    cv2.rectangle(image, corners[0], corners[1], (216, 27, 96), 3)
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG")
    return base64.b64encode(buffer.getvalue()).decode("ascii")

"""Guides that propose regions: a trained bank of behaviors, and its baselines."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sage.core.seeds import generator
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Visit

if TYPE_CHECKING:
    from sage_slide_reading.behavior.baselines import Heat
    from sage_slide_reading.behavior.model import BehaviorModel

PURPOSE = 26


class BehaviorBank:
    """Behaviors of a trained model."""

    def __init__(self, model: BehaviorModel, name: str) -> None:
        self.model = model
        self.name = name
        self.behaviors = tuple(behavior.task for behavior in model.card.behaviors)

    def visits(self, scope: Scope, behavior: str, most: int | None) -> list[Visit]:
        """Propose regions, best first, omitting those whose center is outside the slide."""
        found = self.model.predict(scope.slide, behavior, most)
        wide, high = scope.slide.width, scope.slide.height
        return [
            Visit(x=r.x, y=r.y, w=r.w, h=r.h, score=r.score, bin=r.bin)
            for r in found
            if 0 <= r.x + r.w / 2 < wide and 0 <= r.y + r.h / 2 < high
        ]


def bank(folder: Path | None) -> BehaviorBank:
    """Load the bank of a model's folder, or of the bundled model if None.

    Raises
    ------
    InputError
        If there is no model.
    """
    from sage_slide_reading.behavior.model import BehaviorModel, shipped_model

    if folder is None:
        return BehaviorBank(BehaviorModel(shipped_model()), "the bundled behavior model")
    return BehaviorBank(BehaviorModel(folder), f'the behavior model "{folder.resolve().name}"')


@dataclass(frozen=True)
class HeatGuide:
    """Proposes the highest points of a map as squares sized relative to the slide's height."""

    name: str
    heat: Heat
    share: float
    bin: float
    count: int
    behaviors: tuple[str, ...] = ("baseline",)

    def visits(self, scope: Scope, behavior: str, most: int | None) -> list[Visit]:
        """Return the peaks, highest first."""
        from sage_slide_reading.behavior.baselines import peaks
        from sage_slide_reading.behavior.examples import thumbnail_of

        image = thumbnail_of(scope.slide, 256)
        scale = scope.slide.width / image.shape[1]
        side = self.share * image.shape[0]
        boxes, values = peaks(self.heat(image), (side, side), most or self.count)
        return [
            Visit(x=x * scale, y=y * scale, w=w * scale, h=h * scale, score=value, bin=self.bin)
            for (x, y, w, h), value in zip(boxes.tolist(), values.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class UnguidedPlaces:
    """Proposes squares anywhere on the slide, drawn at random, as a baseline without guidance."""

    seed: int
    share: float
    bin: float
    count: int
    name: str = "no guidance (random regions)"
    behaviors: tuple[str, ...] = field(default=("baseline",))

    def visits(self, scope: Scope, behavior: str, most: int | None) -> list[Visit]:
        """Draw squares within the slide."""
        wide, high = scope.slide.width, scope.slide.height
        side = min(self.share * high, wide, high)
        drawn = generator(self.seed, PURPOSE).uniform(0.0, 1.0, (most or self.count, 2))
        corners = drawn * np.array([wide - side, high - side])
        return [
            Visit(x=x, y=y, w=side, h=side, score=0.0, bin=self.bin) for x, y in corners.tolist()
        ]


@dataclass(frozen=True)
class RecordedVisits:
    """Regions that a reader visited on this slide: the upper bound for a learned behavior."""

    recorded: tuple[Visit, ...]
    name: str = "a recorded reader"
    behaviors: tuple[str, ...] = field(default=("recorded",))

    def visits(self, scope: Scope, behavior: str, most: int | None) -> list[Visit]:
        """Return the recorded regions."""
        return list(self.recorded[:most])

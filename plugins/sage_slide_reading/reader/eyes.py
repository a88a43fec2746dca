"""Protocols for the three roles in a reading: Navigator, Perceptor, and Executor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from agents.core.base import View
from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import (
    Described,
    MissingInfo,
    Prediction,
    Question,
    Reflection,
    Region,
)


class State(View):
    """S_t as the Executor sees it: what was described, and how the patches were chosen.

    `screened` means that every patch was ranked by its appearance, so what the highest-ranked
    patches do not show is not on the slide.
    """

    slide: str
    size: tuple[int, int]
    mpp: float
    round: int
    seen: tuple[Described, ...]
    screened: bool
    last_round: bool


class Navigator(Protocol):
    """Scores patches by their relevance to a question or to what is missing."""

    name: str
    screens: bool

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        """Score each region; the highest is visited first.

        Parameters
        ----------
        scope : the slide
        regions : candidates, at one magnification
            query : the question's words, or the missing information
        """
        ...


class Perceptor(Protocol):
    """Describes a patch."""

    name: str

    def describe(self, scope: Scope, region: Region, question: Question | None) -> Described:
        """Describe a region; with a question, describe what is relevant to it."""
        ...


class Executor(Protocol):
    """Predicts, reflects, and names missing information."""

    name: str

    def predict(self, scope: Scope, state: State, question: Question) -> Prediction:
        """Answer from the descriptions, or decline to answer."""
        ...

    def reflect(
        self, scope: Scope, state: State, question: Question, prediction: Prediction
    ) -> Reflection:
        """Judge whether the descriptions support the answer.

        Parameters
        ----------
        scope : the slide
        state : descriptions so far
            prediction : the answer to judge
        """
        ...

    def missing(self, scope: Scope, state: State, question: Question) -> MissingInfo:
        """Name the missing information, and whether zooming in would show it."""
        ...

    def at_once(
        self, scope: Scope, state: State, question: Question
    ) -> tuple[Prediction, Reflection, MissingInfo]:
        """Do all three at once: the ablation without multi-step reasoning."""
        ...


@dataclass(frozen=True)
class Eyes:
    """Navigator, Perceptor, and Executor, with a sentence or two about them.

    If `in_parts` is true, a proposed region is described in patches of the finest size, as for
    measurements, rather than as one picture.
    """

    name: str
    statement: str
    navigator: Navigator
    perceptor: Perceptor
    executor: Executor
    in_parts: bool = True

"""Choosing tools without a model: registered compositions, then the tools' own descriptions."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp_servers.orchestrator import Plan, Reference, Step, ToolCard
from sage.core.errors import InputError

STEM = 5
"""Words are compared by this many first letters: segment and segmentation are one."""
LEAST = 0.35
"""Share of a clause's weight that a tool must cover to be chosen."""
SPLIT = re.compile(r"\bthen\b|\bafterwards\b|[;.,]|\band\b", re.IGNORECASE)
DULL = frozenset(
    re.findall(
        r"\w+",
        "a an the of in on for to by with and or then me my this that it its from into all each "
        "please run do make get give show tell what is are whether how want need use using "
        "slide slides image images whole",
    )
)


@dataclass(frozen=True)
class Composition:
    """A registered sequence of tools. Every group of words must be met by the request."""

    name: str
    words: tuple[tuple[str, ...], ...]
    steps: tuple[tuple[str, str, dict[str, tuple[str, str]]], ...]
    """Tool, why, and what its arguments take: argument -> (tool, field of its result)."""


TUMOR = ("tumor", "tumour", "cancer", "carcinoma", "neoplas")
COMPOSITIONS = (
    Composition(
        "tumor, then patches by region",
        (TUMOR, ("patch", "tile"), ("region", "peritum", "band", "margin", "aware")),
        (
            ("tumor", "find the tumor", {}),
            (
                "region_patches",
                "patches of tumor, peritumoral band and rest",
                {"tumor_regions": ("tumor", "geojson")},
            ),
        ),
    ),
    Composition(
        "TLS relative to the tumor",
        (("tls", "tertiary", "lymphoid", "aggregate"), TUMOR),
        (
            ("tumor", "find the tumor", {}),
            ("tls", "aggregates and where they lie", {"tumor_regions": ("tumor", "geojson")}),
        ),
    ),
    Composition(
        "lymphocytes in and around the tumor",
        (("til", "lymphocyte", "infiltrat"), (*TUMOR, "margin")),
        (
            ("tumor", "find the tumor", {}),
            ("til", "density by zone", {"tumor_regions": ("tumor", "geojson")}),
        ),
    ),
    Composition(
        "tissue, then tiles",
        (("tissue",), ("tile", "patch", "grid")),
        (("tissue_mask", "find the tissue", {}), ("tile_slide", "tiles over the tissue", {})),
    ),
    Composition(
        "compare survival",
        (("survival", "kaplan", "prognos"), ("compare", "difference", "versus", "between", "by")),
        (
            ("kaplan_meier", "curves of the groups", {}),
            ("logrank", "test of the difference", {}),
        ),
    ),
)


def stems(text: str) -> list[str]:
    """The words of a text that say something, cut to their first letters."""
    words = re.findall(r"[a-z0-9]+", text.lower().replace("_", " "))
    return [word[:STEM] for word in words if word not in DULL]


def by_composition(
    request: str, cards: Mapping[str, ToolCard], inputs: dict[str, Any]
) -> Plan | None:
    """The first registered composition whose words are all in the request, if its tools are here.

    A composition whose tools lack an input is passed over.
    """
    words = re.findall(r"[a-z0-9]+", request.lower())
    for one in COMPOSITIONS:
        if not all(_met(group, words) for group in one.words):
            continue
        if not all(tool in cards for tool, _, _ in one.steps):
            continue
        steps = []
        for tool, why, uses in one.steps:
            references = {
                argument: Reference(step=source, field=field)
                for argument, (source, field) in uses.items()
            }
            steps.append(_step(cards[tool], inputs, why, references))
        if any(_missing(cards[step.tool], step) for step in steps):
            continue
        return Plan(steps=steps, method="composition", name=one.name)
    return None


def _met(group: tuple[str, ...], words: list[str]) -> bool:
    short = {one for one in group if len(one) <= 3}
    return any(
        word in short or any(word.startswith(one) for one in group if one not in short)
        for word in words
    )


def by_descriptions(request: str, cards: Mapping[str, ToolCard], inputs: dict[str, Any]) -> Plan:
    """One tool per clause of the request, the one whose description covers the clause best.

    Words are weighted by how few tools they describe. What no tool covers is told in the notes.

    Raises `InputError` when no clause is covered.
    """
    texts = {name: Counter(stems(f"{name} {name} {card.summary}")) for name, card in cards.items()}
    total = max(1, len(texts))
    known = Counter(stem for text in texts.values() for stem in text)
    steps: list[Step] = []
    notes: list[str] = []
    for clause in (one.strip() for one in SPLIT.split(request)):
        wanted = stems(clause)
        if not wanted:
            continue
        ranked = sorted(
            ((_score(wanted, text, known, total), name) for name, text in texts.items()),
            key=lambda item: (-item[0], item[1]),
        )
        score, best = ranked[0]
        if score < LEAST:
            notes.append(f'no tool covers "{clause}"')
            continue
        if not any(step.tool == best for step in steps):
            steps.append(_step(cards[best], inputs, clause, {}))
    if not steps:
        scores = {name: _score(stems(request), texts[name], known, total) for name in texts}
        near = sorted((name for name in scores if scores[name] > 0), key=lambda one: -scores[one])
        nearest = f"the nearest are: {', '.join(near[:5])}. " if near else ""
        raise InputError(f'no tool covers "{request[:100]}"; {nearest}See `sage tools list`')
    return Plan(steps=steps[:8], method="descriptions", notes=notes)


def _score(wanted: list[str], text: Counter[str], known: Counter[str], total: int) -> float:
    """Share of the clause's weight that the description covers; a name counts twice as much."""
    weight = covered = 0.0
    for stem in set(wanted):
        rarity = math.log(1 + total / (1 + known[stem]))
        weight += rarity
        covered += rarity * (1.0 if text[stem] >= 2 else 0.6 if text[stem] else 0.0)
    return covered / weight if weight else 0.0


def _step(card: ToolCard, inputs: dict[str, Any], why: str, uses: dict[str, Reference]) -> Step:
    """A call with every input that the tool takes by that name."""
    properties = card.input_schema.get("properties", {})
    arguments = {
        name: value for name, value in inputs.items() if name in properties and name not in uses
    }
    return Step(id=card.name, tool=card.name, arguments=arguments, uses=uses, why=why)


def _missing(card: ToolCard, step: Step) -> list[str]:
    given = set(step.arguments) | set(step.uses)
    return [one for one in card.input_schema.get("required", ()) if one not in given]

"""Scripted readers of slides, with stated strategies and a hand that is not quite steady.

What a reader does is a list of looks (`plan`): where the view goes, how long the way takes, how
long it stays. The same looks drive the viewer in a browser, whose recorder writes the session, or
are written as the stream of views that an ideal viewer would show (`stream`).

- systematic: row by row, back and forth, over all tissue at low power;
- target-driven: an overview, then what looks suspicious, at high power, until something is found;
- mixed: a sparse survey at low power, then the most suspicious places at high power;
- lazy: the middle of the tissue, and the most conspicuous place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from benchmarks.simulate.node import Node
from mcp_servers.slides.slide import Slide
from sage.core.seeds import generator
from sage_slide_reading.behavior.baselines import tissue_mask
from sage_slide_reading.sessions.format import EventKind, Session, SessionHeader, ViewEvent
from validation.statistics.base import BoolArray

Strategy = Literal["systematic", "target-driven", "mixed", "lazy"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)
TASKS: dict[Strategy, str] = {
    "systematic": "screen the whole slide row by row",
    "target-driven": "find metastatic tumor",
    "mixed": "screen the slide, then look closer at what is suspicious",
    "lazy": "glance at the slide",
}
"""What each was asked to do: the behavior that its sessions teach."""
SCREEN = (960, 690)
"""Pixels of the viewer; 690 / 960 is the aspect of every view."""
HERTZ = 10.0
"""Views per second while the view moves, about as often as viewers log."""
PURPOSE = 22
COARSE, SURVEY, FINE = 0.30, 0.38, 0.15
"""Widths of the views as shares of the slide's height: a raster, a sparse survey, a close look."""


@dataclass(frozen=True)
class Spot:
    """Something that may draw the eye: center and radius in level-0 pixels, 1 most suspicious."""

    x: float
    y: float
    radius: float
    interest: float


@dataclass(frozen=True)
class Scenery:
    """What a scripted reader knows of a slide; the tissue is a mask over the whole of it."""

    width: int
    height: int
    tissue: BoolArray
    spots: tuple[Spot, ...]

    def share(self, x: float, y: float, width: float, height: float) -> float:
        """Share of a view that is tissue.

        Parameters
        ----------
        x, y : its center, in level-0 pixels
        width, height : its sides
        """
        rows, columns = self.tissue.shape
        left, right = np.clip([(x - width / 2), (x + width / 2)], 0, self.width)
        top, bottom = np.clip([(y - height / 2), (y + height / 2)], 0, self.height)
        part = self.tissue[
            int(top / self.height * rows) : max(1, math.ceil(bottom / self.height * rows)),
            int(left / self.width * columns) : max(1, math.ceil(right / self.width * columns)),
        ]
        return float(part.mean()) if part.size else 0.0

    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom of the tissue."""
        rows, columns = np.nonzero(self.tissue)
        if not len(rows):
            return 0.0, 0.0, float(self.width), float(self.height)
        down, across = self.height / self.tissue.shape[0], self.width / self.tissue.shape[1]
        return (
            columns.min() * across, rows.min() * down,
            (columns.max() + 1) * across, (rows.max() + 1) * down,
        )  # fmt: skip


@dataclass(frozen=True)
class Look:
    """The view goes to a center and width (level-0 pixels) in `travel_s` and stays `dwell_s`."""

    x: float
    y: float
    width: float
    travel_s: float
    dwell_s: float


def scenery_of(slide: Slide, node: Node | None = None) -> Scenery:
    """A slide as a scripted reader knows it: planted truth where there is one, else the image.

    Without planted truth the spots are the peaks of nuclear density on the thumbnail.
    """
    import cv2

    from mcp_servers.pathology.compute.nuclei import nuclear_density

    image = slide.thumbnail(512)
    mask = tissue_mask(image)
    if node is not None:
        return Scenery(slide.width, slide.height, mask, _planted(node, slide.need_mpp()))
    scale = slide.width / image.shape[1]
    density = cv2.GaussianBlur(nuclear_density(image), (0, 0), image.shape[0] / 30) * mask
    spots: list[Spot] = []
    radius = 0.06 * slide.height
    for rank in range(5):
        row, column = np.unravel_index(int(density.argmax()), density.shape)
        x, y = (float(column) + 0.5) * scale, (float(row) + 0.5) * scale
        spots.append(Spot(x, y, radius, 0.9 - 0.1 * rank))
        cv2.circle(density, (int(column), int(row)), round(2.5 * radius / scale), 0.0, -1)
    return Scenery(slide.width, slide.height, mask, tuple(spots))


def _planted(node: Node, mpp: float) -> tuple[Spot, ...]:
    """Deposits, then germinal centers, which look alike at low power, then plain follicles."""
    spots = []
    for x, y, radius in node.deposits:
        points = [(x, y)]
        if radius > 600.0:  # a large deposit is looked at in its middle and on its border
            away = 0.7 * radius
            points += [(x + away, y), (x - away, y), (x, y + away), (x, y - away)]
        interest = 0.85 if radius < 100.0 else 1.0
        spots += [Spot(a / mpp, b / mpp, radius / mpp, interest) for a, b in points]
    by_size = sorted(node.follicles, key=lambda follicle: -follicle[2])
    spots += [
        Spot(x / mpp, y / mpp, radius / mpp, 0.5 if place < node.germinal_centers else 0.1)
        for place, (x, y, radius) in enumerate(by_size)
    ]
    return tuple(spots)


def plan(scenery: Scenery, strategy: Strategy, seed: int) -> list[Look]:
    """The looks of a reader of this strategy; equal arguments give equal looks.

    Parameters
    ----------
    scenery : the slide
    strategy : see the module
    seed : of the reader's hand and mind
    """
    rng = generator(seed, PURPOSE, STRATEGIES.index(strategy))
    high, aspect = float(scenery.height), SCREEN[1] / SCREEN[0]
    left, top, right, bottom = scenery.bounds()
    middle = ((left + right) / 2, (top + bottom) / 2)
    looks = [Look(scenery.width / 2, high / 2, _whole(scenery), 0.0, float(rng.uniform(1.5, 3.0)))]

    def look(x: float, y: float, width: float, dwell: float) -> None:
        """Go there, sometimes a little too far and back, and stay about `dwell`."""
        width *= float(rng.lognormal(0.0, 0.05))
        x, y = x + float(rng.normal(0, 0.04 * width)), y + float(rng.normal(0, 0.04 * width))
        last = looks[-1]
        far = math.hypot(x - last.x, y - last.y) / max(width, last.width)
        travel = 0.4 + 0.5 * float(rng.uniform()) + 0.2 * min(far, 3.0)
        if rng.uniform() < 0.3:
            beyond = float(rng.uniform(0.04, 0.12))
            over = (x + beyond * (x - last.x), y + beyond * (y - last.y))
            looks.append(Look(*over, width, travel, float(rng.uniform(0.1, 0.35))))
            travel = 0.4
        stay = max(0.2, dwell * float(rng.lognormal(0.0, 0.3)))
        looks.append(Look(x, y, width, travel, stay))

    def raster(field: float, step: float, dwell: float) -> None:
        """Row by row over the tissue, every other row backward."""
        wide = field * high
        across, down = step * wide, step * wide * aspect
        columns = max(1, round((right - left) / across))
        rows = max(1, round((bottom - top) / down))
        for row in range(rows):
            line = range(columns) if row % 2 == 0 else range(columns - 1, -1, -1)
            for column in line:
                x = left + (column + 0.5) * (right - left) / columns
                y = top + (row + 0.5) * (bottom - top) / rows
                if scenery.share(x, y, wide, wide * aspect) > 0.3:
                    look(x, y, wide, dwell)

    def targets(most: int) -> None:
        """The suspicious places, most suspicious first; two more once something was found."""
        order = sorted(
            scenery.spots, key=lambda spot: -spot.interest * float(rng.lognormal(0.0, 0.08))
        )
        found, visited = False, 0
        for spot in order:
            if visited >= most or (found and spot.interest < 0.6 and visited >= 3):
                break
            if rng.uniform() > min(0.97, 0.2 + spot.interest):
                continue
            visited += 1
            found |= spot.interest > 0.8
            look(spot.x, spot.y, FINE * high, 2.2 if spot.interest > 0.8 else 1.5)

    if strategy == "systematic":
        raster(COARSE, 0.9, 1.8)
    elif strategy == "target-driven":
        targets(6)
    elif strategy == "mixed":
        raster(SURVEY, 1.6, 1.6)
        targets(3)
    else:
        look(*middle, COARSE * high, 1.6)
        spots = sorted(scenery.spots, key=lambda spot: -spot.interest * spot.radius**0.5)
        if spots:
            look(spots[0].x, spots[0].y, FINE * high, 1.6)
    looks.append(Look(scenery.width / 2, high / 2, _whole(scenery), 0.7, 0.5))
    return looks


def _whole(scenery: Scenery) -> float:
    """Width of the view that shows the whole slide."""
    return max(float(scenery.width), scenery.height * SCREEN[0] / SCREEN[1])


def header_of(
    slide: Slide, strategy: Strategy, reader: str, screen: tuple[int, int] = SCREEN
) -> SessionHeader:
    """The header of a scripted session, which says that it is one.

    Parameters
    ----------
    slide : open
    strategy : the reader's, which sets the task
    reader : pseudonym
    screen : width and height of the viewer in pixels
    """
    return SessionHeader(
        slide=slide.path.name,
        width=slide.width,
        height=slide.height,
        mpp=slide.mpp,
        objective=slide.objective_power,
        screen=screen,
        reader=reader,
        task=TASKS[strategy],
        started="2026-01-01T00:00:00+00:00",
        note=f"scripted reader, strategy {strategy}; nobody looked",
    )


def stream(looks: Sequence[Look], header: SessionHeader) -> Session:
    """The session that an ideal viewer would record: views at 10 Hz on the way, none while still.

    On the way the center moves evenly on the screen and the width on a scale of ratios, both with
    a soft start and end.
    """
    events: list[ViewEvent] = []
    aspect = header.screen[1] / header.screen[0]
    now = 0.0

    def show(kind: EventKind, x: float, y: float, width: float) -> None:
        high = width * aspect
        events.append(
            ViewEvent(
                t=round(now, 3), kind=kind, x=round(x - width / 2, 1), y=round(y - high / 2, 1),
                w=round(width, 1), h=round(high, 1),
                magnification=round(header.magnification(width), 4),
            )
        )  # fmt: skip

    x, y, width = looks[0].x, looks[0].y, looks[0].width
    show("open", x, y, width)
    now += looks[0].dwell_s
    for look in looks[1:]:
        steps = max(1, round(look.travel_s * HERTZ))
        kind: EventKind = "zoom" if abs(math.log(look.width / width)) > 0.02 else "pan"
        for step in range(1, steps + 1):
            part = step / steps
            soft = part * part * (3 - 2 * part)
            now += look.travel_s / steps
            show(
                kind, x + soft * (look.x - x), y + soft * (look.y - y),
                width * (look.width / width) ** soft,
            )  # fmt: skip
        x, y, width = look.x, look.y, look.width
        now += look.dwell_s
    show("close", x, y, width)
    return Session(header=header, events=tuple(events))

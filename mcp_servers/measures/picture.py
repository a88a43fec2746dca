"""Side-by-side fields of two patients with everything in their maps, at the same scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.lazy import shapely
from mcp_servers.measures.language import Measurement
from mcp_servers.measures.maps import SlideMaps
from mcp_servers.measures.places import Margin, Objects, Points, Region, area_words, plural
from mcp_servers.slides.arrays import F64
from sage.core.files import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLORS = ("#b2182b", "#2166ac", "#1b7837", "#e08214", "#762a83", "#35978f", "#8c510a", "#c51b7d")
QUIET = "#bdbdbd"
FIELD_UM, WIDE_FIELD_UM = 1500.0, 12_000.0
"""Longest side of the drawn field for slides with cells, and for slides with objects only."""
MOST_POINTS = 40_000


def draw_fields(
    measurement: Measurement, slides: list[tuple[str, SlideMaps]], path: Path
) -> tuple[str, ...]:
    """Draw a field from each slide at the same scale under its title; return its contents.

    The field is where most of the measured objects are. Cells and objects in the measurement
    are in color, and other cells are gray.
    """
    from matplotlib.figure import Figure

    named = list_operands(measurement)
    side = max(_side(maps) for _, maps in slides)
    figure = Figure(figsize=(5 * len(slides), 5.6), layout="constrained")
    drawn: dict[str, None] = {}
    for axes, (title, maps) in zip(
        np.atleast_1d(figure.subplots(1, len(slides))), slides, strict=True
    ):
        drawn |= dict.fromkeys(_draw(axes, maps, named, side))
        axes.set_title(title, fontsize=10)
        low = axes.get_xlim()[0], axes.get_ylim()[0]
        bar = 100.0 if side <= 3000 else 1000.0
        start = low[0] + side * 0.04
        axes.plot([start, start + bar], [low[1] - side * 0.04] * 2, color="black", linewidth=3)
        axes.text(start, low[1] - side * 0.06, f"{bar:g} µm", fontsize=8)
    labels = list(drawn)
    handles: dict[Any, Any] = {}
    for axes in figure.axes:
        handles |= {h.get_label(): h for h in axes.get_legend_handles_labels()[0]}
    if labels:
        shown = [handles[name] for name in labels]
        place: dict[str, Any] = {"loc": "outside lower center", "ncols": min(len(labels), 4)}
        figure.legend(shown, labels, fontsize=8, frameon=False, **place)
    with replacing(path) as part:
        figure.savefig(part, format="png", dpi=110, metadata={"Software": None})
    return tuple(labels)


def densest_field(measurement: Measurement, maps: SlideMaps) -> tuple[float, float, float]:
    """Find the center and side, in µm, of the field to draw for a slide."""
    side = _side(maps)
    return (*_center(maps, list_operands(measurement), side), side)


def list_operands(measurement: Measurement) -> list[Points | str]:
    """List the points and regions named in an expression, in order."""
    found: list[Any] = []
    for part in measurement.of.parts():
        for value in (getattr(part, name, None) for name in type(part).model_fields):
            if getattr(value, "source", None) is not None:
                found.append(value)
            elif isinstance(value, Region):
                found.append(value.name)
            elif isinstance(value, Margin):
                found.append(value.of)
        if isinstance(region := getattr(part, "region", None), str):
            found.append(region)
    return list(dict.fromkeys(found))


def _side(maps: SlideMaps) -> float:
    longest = WIDE_FIELD_UM if maps.cells is None else FIELD_UM
    points = _points(maps)
    if maps.window is not None:
        x0, y0, x1, y1 = maps.window.bounds
    elif len(points):
        (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
    else:
        return longest
    return float(min(longest, max(x1 - x0, y1 - y0, 100.0)))


def _points(maps: SlideMaps) -> F64:
    if maps.cells is not None:
        return maps.cells.points
    return maps.objects.points if maps.objects is not None else np.zeros((0, 2))


def _center(maps: SlideMaps, named: list[Points | str], side: float) -> tuple[float, float]:
    """Find the center of the densest field of measured points, within the tissue's bounds."""
    points = _points(maps)
    if maps.cells is not None:
        types = [p.type for p in named if getattr(p, "source", "") == "cells" and p.type]  # type: ignore[union-attr]
        of_type = [maps.cells.of_type(name) for name in types if name in maps.cells.types]
        if of_type and of_type[0].any():
            points = points[of_type[0]]
    if maps.window is not None:
        x0, y0, x1, y1 = maps.window.bounds
    elif len(points):
        (x0, y0), (x1, y1) = points.min(axis=0), points.max(axis=0)
    else:
        return side / 2, side / 2
    at = np.array([(x0 + x1) / 2, (y0 + y1) / 2])
    if len(points):
        bins = np.floor(points / (side / 2)).astype(np.int64)
        _, first, counts = np.unique(bins, axis=0, return_index=True, return_counts=True)
        at = (bins[first[np.argmax(counts)]] + 0.5) * side / 2
    for axis, (low, high) in enumerate(((x0, x1), (y0, y1))):
        if high - low <= side:
            at[axis] = (low + high) / 2
        else:
            at[axis] = np.clip(at[axis], low + side / 2, high - side / 2)
    return float(at[0]), float(at[1])


def _draw(axes: Axes, maps: SlideMaps, named: list[Points | str], side: float) -> list[str]:
    """Draw a field, and return the labels of its contents."""
    x, y = _center(maps, named, side)
    labels: list[str] = []
    if maps.window is not None:
        _outline(axes, maps.window, "#888888", None)
    if maps.regions is not None:
        for kind in maps.regions.kinds:
            label = area_words(kind).removeprefix("the ")
            for shape in maps.regions.of_kind(kind):
                _outline(axes, shape, "#e7969c" if kind in named else "#dddddd", label, fill=True)
                labels.append(label)
    if maps.cells is not None:
        xy = maps.cells.points
        near = (np.abs(xy - [x, y]) <= side / 2).all(axis=1)
        for place, name in enumerate(maps.cells.types):
            own = xy[near & (maps.cells.codes == place)][:MOST_POINTS]
            wanted = any(getattr(p, "type", None) == name for p in named)
            label = plural("cells", name)
            color = COLORS[place % len(COLORS)] if wanted else QUIET
            if len(own):
                size = (9.0, 3) if wanted else (3.0, 2)
                axes.scatter(own[:, 0], own[:, 1], s=size[0], color=color, linewidths=0,
                             label=label, zorder=size[1])  # fmt: skip
                labels.append(label)
    if maps.objects is not None and len(maps.objects):
        xy = maps.objects.points
        for place, kind in enumerate(maps.objects.kinds):
            own = xy[maps.objects.codes == place]
            wanted = Objects(type=kind) in named
            label = plural("objects", kind)
            if len(own):
                style: dict[str, Any] = {
                    "facecolors": "none",
                    "edgecolors": COLORS[(place + 4) % len(COLORS)],
                }
                area = 40 if wanted else 16
                axes.scatter(own[:, 0], own[:, 1], s=area, label=label, zorder=4, **style)
                labels.append(label)
    axes.set_xlim(x - side / 2, x + side / 2)
    axes.set_ylim(y + side / 2, y - side / 2)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    return labels


def _outline(axes: Axes, shape: Any, color: str, label: str | None, *, fill: bool = False) -> None:
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    rings = []
    for part in shapely.get_parts(shape):
        for ring in (part.exterior, *part.interiors):
            rings.append(Outline(np.asarray(ring.coords), closed=True))
    if rings:
        patch = PathPatch(
            Outline.make_compound_path(*rings),
            facecolor=color if fill else "none",
            edgecolor=color,
            alpha=0.35 if fill else 1.0,
            linewidth=0.8,
            label=label,
            zorder=1,
        )
        axes.add_patch(patch)

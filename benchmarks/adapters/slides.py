"""Slide tools: nuclei, aggregates and germinal centers on painted slides.

The seeds differ from those used to choose constants. The planted truth comes from
`validation.simulate.slide`.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from numpy.typing import NDArray

from benchmarks.runner import Report, Row
from benchmarks.simulate.scenes import render_scene
from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from validation.simulate.slide import render_slide

Points = NDArray[np.float64]
LEAST_AREA_UM2 = 10_000
"""Smallest area of an aggregate that the tool reports."""


def match_points(found: Points, truth: Points, radius: float) -> int:
    """Count pairs within a radius, using each point at most once, nearest first."""
    from scipy.spatial import cKDTree

    if not len(found) or not len(truth):
        return 0
    distance, index = cKDTree(truth).query(found, k=4, distance_upper_bound=radius)
    pairs = sorted(
        (float(distance[i, k]), i, int(index[i, k]))
        for i, k in np.argwhere(np.isfinite(distance)).tolist()
    )
    used_found: set[int] = set()
    used_truth: set[int] = set()
    for _, i, j in pairs:
        if i not in used_found and j not in used_truth:
            used_found.add(i)
            used_truth.add(j)
    return len(used_found)


def score_pairs(pairs: int, found: int, truth: int) -> str:
    """Format precision, recall and F1."""
    precision, recall = pairs / max(found, 1), pairs / max(truth, 1)
    f1 = 2 * precision * recall / max(precision + recall, 1e-9)
    return f"precision {precision:.3f}, recall {recall:.3f}, F1 {f1:.3f}"


def run_tool(folder: Path, name: str, /, **arguments: Any) -> dict[str, Any]:
    """Run a tool in a folder and return its result."""
    context = ToolContext(Roots.resolve([folder], folder / "out"))
    return load("pathology").run(name, arguments, context).result


def score_slides(folder: Path, seeds: list[int], mpp: float) -> list[Row]:
    """Score nuclei and aggregates on painted slides of 3072 x 3072 px."""
    nuclei, aggregates = ([0, 0, 0] for _ in range(2))
    for seed in seeds:
        path = folder / f"painted-{seed}.tif"
        truth = render_slide(path, seed=seed, size_px=3072, mpp=mpp, aggregates=4)
        result = run_tool(folder, "nuclei", slide=path.name, outlines=False)
        table = pd.read_csv(folder / "out" / result["table"])
        found = table[["x", "y"]].to_numpy()
        groups = (truth.tumor_nuclei, truth.stroma_nuclei, truth.lymphocytes)
        planted = np.concatenate(groups).astype(np.float64)
        nuclei[0] += match_points(found, planted, 4.0 / mpp)
        nuclei[1] += len(found)
        nuclei[2] += len(planted)
        result = run_tool(folder, "tls", slide=path.name)
        got = np.array([[a["x"], a["y"]] for a in result["aggregates"]]).reshape(-1, 2)
        large = [a for a in truth.aggregates if np.pi * (a.radius * mpp) ** 2 >= LEAST_AREA_UM2]
        near = [np.hypot(*(got - (a.x, a.y)).T) < a.radius for a in large]
        aggregates[0] += sum(bool(inside.any()) for inside in near)
        aggregates[1] += len(got)
        aggregates[2] += len(large)
    measured = f"{len(seeds)} painted slides, {mpp} µm/px"
    figures = {
        "nuclei": score_pairs(*nuclei),
        "aggregates": f"{aggregates[0]} of {aggregates[2]} found, {aggregates[1]} reported",
    }
    return [
        Row(benchmark=f"Slides, {name}", measured=measured, sage=text)
        for name, text in figures.items()
    ]


def score_germinal_centers(folder: Path, seeds: list[int]) -> Row:
    """Score planted germinal centers."""
    hits = planted = reported = doubtful = 0
    for seed in seeds:
        path = folder / f"centers-{seed}.tif"
        truth = render_scene(path, seed=seed, size_px=2600, aggregates=4, germinal_centers=2)
        result = run_tool(folder, "tls", slide=path.name)
        rows = [row for row in result["aggregates"] if row["germinal_centers"]]
        cores = [aggregate for aggregate in truth.aggregates if aggregate.core]
        hits += sum(
            any(np.hypot(row["x"] - core.x, row["y"] - core.y) < core.radius for row in rows)
            for core in cores
        )
        planted += len(cores)
        reported += result["germinal_centers"] or 0
        doubtful += result["doubtful_germinal_centers"]
    return Row(
        benchmark="Slides, germinal centers",
        measured=f"{len(seeds)} painted slides",
        sage=f"{hits} of {planted} found, {reported} reported, {doubtful} doubtful",
    )


def run(
    seeds: Annotated[int, typer.Option(min=1, help="Painted slides of each kind.")] = 5,
    first: Annotated[int, typer.Option(help="Seed of the first.")] = 101,
) -> Report:
    """Score the slide tools on painted slides."""
    numbers = list(range(first, first + seeds))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [row for mpp in (0.5, 0.25) for row in score_slides(folder, numbers, mpp)]
        rows.append(score_germinal_centers(folder, [number + 500 for number in numbers]))
    return Report(rows=tuple(rows))

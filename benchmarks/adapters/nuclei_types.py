"""Types of nuclei: the shipped regressions on tiles from patients not used in the fit.

The labels are regions with almost only one type of nucleus, outlined by eye but not by a
pathologist: weak evidence, as the card (data/models/nuclei_types.json) states. The tiles
are those in nuclei_types_held_out.json (MoNuSeg, 13 patients).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from benchmarks.runner import Report, Row
from mcp_servers.pathology.compute.cell_types import (
    TYPES,
    Coefficients,
    apply_regression,
    coefficients,
    dye_strength,
)
from mcp_servers.pathology.compute.nuclei import (
    COLUMNS,
    LYMPHOCYTE_MAX_ECCENTRICITY,
    Nuclei,
    lymphocyte_like,
    segment,
    surroundings,
)
from mcp_servers.slides.slide import Slide

HELD_OUT = Path(__file__).resolve().parents[1] / "nuclei_types_held_out.json"
Segment = Callable[[Any, float], Nuclei]
Array = NDArray[Any]


def read_image(path: Path, mpp: float, at_mpp: float) -> Array:
    """Read an image from the shared data at a given pixel size."""
    import cv2

    with Slide.open(path, mpp=mpp) as slide:
        image = slide.read(0, 0, slide.width, slide.height)
    factor = mpp / at_mpp
    if abs(factor - 1) < 0.02:
        return np.ascontiguousarray(image)
    method = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, None, fx=factor, fy=factor, interpolation=method))


def name_slide(image: str) -> str:
    """Return an image's slide name, since the lung patches come from two slides."""
    if not image.startswith("til_patches/"):
        return image
    return f"til_patches of patient {1 if int(Path(image).stem) < 30 else 2}"


def load_labelled(
    regions: list[dict[str, Any]], shared: Path, found: Segment, at_mpp: float
) -> Any:
    """Measure the nuclei in the regions; return rows, kinds, and the slides' stain strengths."""
    import cv2

    rows, kinds, strengths = [], [], []
    pixel = {region["image"]: region["mpp"] for region in regions}
    pictures = {name: read_image(shared / name, mpp, at_mpp) for name, mpp in sorted(pixel.items())}
    dyes = {
        slide: dye_strength([pictures[name] for name in pictures if name_slide(name) == slide])
        for slide in {name_slide(name) for name in pictures}
    }
    for name, picture in pictures.items():
        own = [region for region in regions if region["image"] == name]
        mpp = pixel[name]
        nuclei = found(picture, at_mpp)
        table = np.hstack([nuclei.table, surroundings(nuclei, picture, at_mpp)])
        points = (table[:, :2] + 0.5) * at_mpp / mpp
        for region in own:
            outline = np.array(region["polygon"], dtype=np.float32)
            inside = [
                cv2.pointPolygonTest(outline, tuple(map(float, p)), False) > 0 for p in points
            ]
            chosen = np.array(inside, dtype=bool)
            rows.append(table[chosen])
            kinds += [region["kind"]] * int(chosen.sum())
            strengths += [dyes[name_slide(name)]] * int(chosen.sum())
    return np.concatenate(rows), np.array(kinds), np.array(strengths)


def score_types(types: Array, kinds: Array, counted: tuple[str, ...]) -> dict[str, Any]:
    """Compute the share of each type by kind, and the mean correct share over some kinds."""
    shares: dict[str, Any] = {}
    for kind in np.unique(kinds):
        own = types[kinds == kind]
        shares[str(kind)] = {"nuclei": len(own)} | {
            name: round(float(np.mean(own == name)), 3) for name in (*TYPES, "outside")
        }
    hits = [shares[kind][kind] for kind in counted]
    return {"balanced_accuracy": round(float(np.mean(hits)), 3), "shares": shares}


def score_held_out(
    shared: Path, found: Segment, known: Coefficients, at_mpp: float
) -> dict[str, Any]:
    """Score nuclei from other patients against a constant type and a two-line rule."""
    regions = json.loads(HELD_OUT.read_text())["regions"]
    table, kinds, dye = load_labelled(regions, shared, found, at_mpp)
    counted = TYPES[:3]
    long = table[:, COLUMNS.index("eccentricity")] > LYMPHOCYTE_MAX_ECCENTRICITY
    rule = np.where(lymphocyte_like(table), "lymphoid", np.where(long, "stromal", "neoplastic"))
    return score_types(apply_regression(known, table, dye).names, kinds, counted) | {
        "constant": round(1 / len(counted), 3),
        "rule_of_size_and_shape": score_types(rule, kinds, counted)["balanced_accuracy"],
    }


def run(
    shared: Annotated[Path, typer.Argument(help="Folder with histology/.")],
) -> Report:
    """Score the types of nuclei found by the classical segmentation."""
    inner = shared / "histology"
    known = coefficients("classical_around")
    found = score_held_out(inner if inner.is_dir() else shared, segment, known, 0.5)
    row = Row(
        benchmark="Types of nuclei",
        measured="tiles of 13 other patients; balanced accuracy",
        baseline=f"{found['constant']}, {found['rule_of_size_and_shape']} (constant, simple rule)",
        sage=str(found["balanced_accuracy"]),
    )
    return Report(rows=(row,), data=found)

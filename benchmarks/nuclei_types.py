"""Types of nuclei: fit the shipped regressions, and score them on images that they did not see.

    python -m benchmarks.nuclei_types --shared FOLDER [--write]

Labels are regions that hold almost only one kind of nucleus, outlined by eye and by no pathologist
(data/models/nuclei_types_regions.json): thin evidence, and the card says so. Each image is left out
in turn. Tiles of 13 other patients (nuclei_types_held_out.json, MoNuSeg) are only measured, beside
one constant type and a rule of size and shape. `--write` makes data/models/nuclei_types.json anew.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcp_servers.pathology.compute.cell_types import (
    ALONE,
    CARD,
    FEATURES,
    TYPES,
    Coefficients,
    apply_regression,
    dye_strength,
    features,
    types_card,
)
from mcp_servers.pathology.compute.nuclei import (
    COLUMNS,
    LYMPHOCYTE_AREA_UM2,
    LYMPHOCYTE_MAX_ECCENTRICITY,
    Nuclei,
    lymphocyte_like,
    segment,
    surroundings,
)
from mcp_servers.slides.slide import Slide
from sage.core.data import data_folder

REGIONS = "nuclei_types_regions.json"
HELD_OUT = Path(__file__).with_name("nuclei_types_held_out.json")
WHOLE_TUMOR_UM2 = 30.0
"""A tumor cell's nucleus cut smaller than this is a fragment, or another cell's."""
SEED = 17
COPIES, DYE_SPREAD = 3, 0.15
"""Each nucleus enters with so many strengths of dye, log-normal with this spread."""
PENALTY = 3.0
PAINTED, PAINTED_PX, PAIRED_UM = "painted", 1600, 3.0
SPAN = (0.5, 99.5)
MARGIN = 0.25
"""Types are given up to this share of the range beyond the training nuclei's percentiles `SPAN`."""
Segment = Callable[[Any, float], Nuclei]
Array = NDArray[Any]


def read(path: Path, mpp: float, at_mpp: float) -> Array:
    """An image of the shared data at a pixel size."""
    import cv2

    with Slide.open(path, mpp=mpp) as slide:
        image = slide.read(0, 0, slide.width, slide.height)
    factor = mpp / at_mpp
    if abs(factor - 1) < 0.02:
        return np.ascontiguousarray(image)
    how = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    return np.asarray(cv2.resize(image, None, fx=factor, fy=factor, interpolation=how))


def source(image: str) -> str:
    """The slide that an image is from: the lung patches are of two."""
    if not image.startswith("til_patches/"):
        return image
    return f"til_patches of patient {1 if int(Path(image).stem) < 30 else 2}"


def labelled(regions: list[dict[str, Any]], shared: Path, found: Segment, at_mpp: float) -> Any:
    """Rows of the nuclei in the regions, their kinds, images, and the slides' strengths of dye."""
    import cv2

    rows, kinds, images, strengths = [], [], [], []
    pixel = {region["image"]: region["mpp"] for region in regions}
    pictures = {name: read(shared / name, mpp, at_mpp) for name, mpp in sorted(pixel.items())}
    dyes = {
        slide: dye_strength([pictures[name] for name in pictures if source(name) == slide])
        for slide in {source(name) for name in pictures}
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
            images += [name] * int(chosen.sum())
            strengths += [dyes[source(name)]] * int(chosen.sum())
    return np.concatenate(rows), np.array(kinds), np.array(images), np.array(strengths)


def painted(found: Segment, at_mpp: float) -> Any:
    """The same of a painted slide, whose nuclei are of known kinds."""
    from scipy.spatial import cKDTree

    from validation.simulate.slide import render_slide

    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "painted.tif"
        truth = render_slide(path, seed=SEED, size_px=PAINTED_PX, mpp=0.5, aggregates=2)
        picture = read(path, 0.5, at_mpp)
    kinds = {
        "neoplastic": truth.tumor_nuclei,
        "stromal": truth.stroma_nuclei,
        "lymphoid": truth.lymphocytes,
    }
    names = np.repeat(list(kinds), [len(points) for points in kinds.values()])
    nuclei = found(picture, at_mpp)
    table = np.hstack([nuclei.table, surroundings(nuclei, picture, at_mpp)])
    away, index = cKDTree(np.concatenate(list(kinds.values()))).query(
        (table[:, :2] + 0.5) * at_mpp / 0.5
    )
    near = away < PAIRED_UM / 0.5
    count = int(near.sum())
    strength = dye_strength([picture])
    return table[near], names[index[near]], np.full(count, PAINTED), np.full(count, strength)


def plausible(table: Array, kinds: Array) -> Array:
    """Which nuclei can be of their region's kind by size: regions hold strangers and fragments."""
    area = table[:, COLUMNS.index("area_um2")]
    large = (kinds == "lymphoid") & (area > LYMPHOCYTE_AREA_UM2[1])
    return ~large & ~((kinds == "neoplastic") & (area < WHOLE_TUMOR_UM2))


def fit(
    table: Array, kinds: Array, images: Array, dye: Array, names: tuple[str, ...] = FEATURES
) -> Coefficients:
    """The regression for some labelled nuclei; each kind weighs alike, and in it each image.

    Parameters
    ----------
    table : (n, columns) measurements, `SURROUNDINGS` included
    kinds, images, dye : (n,) what each is, where it is, and its slide's strength of dye
    names : features to use; with `FEATURES`, implausible nuclei are left out

    Returns
    -------
    The regression, rounded as it ships.
    """
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(SEED)
    known = np.isin(kinds, TYPES)
    if names == FEATURES:
        known &= plausible(table, kinds)
    table, kinds, images, dye = table[known], kinds[known], images[known], dye[known]
    columns = [FEATURES.index(name) for name in names]
    stained = [features(table, dye)[:, columns]]
    for _ in range(COPIES - 1):
        spread = dye * np.exp(rng.normal(0, DYE_SPREAD, len(table)))
        stained.append(features(table, spread)[:, columns])
    given = np.concatenate(stained)
    answer = np.tile([TYPES.index(kind) for kind in kinds], COPIES)
    weight = np.zeros(len(table))
    for kind in TYPES:
        sources = np.unique(images[kinds == kind])
        for image in sources:
            own = (kinds == kind) & (images == image)
            weight[own] = 1.0 / np.sqrt(own.sum())
        weight[kinds == kind] /= weight[kinds == kind].sum()
    mean, sd = given.mean(axis=0), given.std(axis=0)
    model = LogisticRegression(C=1.0 / PENALTY, max_iter=5000)
    total = len(given)
    model.fit((given - mean) / sd, answer, sample_weight=np.tile(weight, COPIES) * total / 4)
    low, high = np.percentile(given, SPAN, axis=0)
    room = MARGIN * (high - low)

    def plainly(values: Array) -> tuple[Any, ...]:
        return tuple(np.round(values, 4).tolist())

    return Coefficients(
        features=names, mean=plainly(mean), sd=plainly(sd), bias=plainly(model.intercept_),
        weights=tuple(plainly(row) for row in model.coef_),
        low=plainly(low - room), high=plainly(high + room),
    )  # fmt: skip


def left_out(
    table: Array, kinds: Array, images: Array, dye: Array, names: tuple[str, ...]
) -> dict[str, Any]:
    """Shares of each kind given each type, each image by a regression that did not see it.

    Painted nuclei are only learned from. Parameters are those of `fit`.

    Returns
    -------
    `balanced_accuracy` over the four types, and `shares` by kind.
    """
    types = np.empty(len(kinds), dtype=object)
    for image in np.unique(images):
        own = images == image
        known = fit(table[~own], kinds[~own], images[~own], dye[~own], names)
        types[own] = apply_regression(known, table[own], dye[own]).names
    real = images != PAINTED
    return scored(types[real], kinds[real], TYPES)


def scored(types: Array, kinds: Array, counted: tuple[str, ...]) -> dict[str, Any]:
    """Shares of each kind given each type, and the mean share that is right over some kinds."""
    shares: dict[str, Any] = {}
    for kind in np.unique(kinds):
        of = types[kinds == kind]
        shares[str(kind)] = {"nuclei": len(of)} | {
            name: round(float(np.mean(of == name)), 3) for name in (*TYPES, "outside")
        }
    hits = [shares[kind][kind] for kind in counted]
    return {"balanced_accuracy": round(float(np.mean(hits)), 3), "shares": shares}


def held_out(shared: Path, found: Segment, known: Coefficients, at_mpp: float) -> dict[str, Any]:
    """How nuclei of other patients are typed, beside one constant type and a rule of two lines."""
    regions = json.loads(HELD_OUT.read_text())["regions"]
    table, kinds, _, dye = labelled(regions, shared, found, at_mpp)
    counted = TYPES[:3]
    long = table[:, COLUMNS.index("eccentricity")] > LYMPHOCYTE_MAX_ECCENTRICITY
    rule = np.where(lymphocyte_like(table), "lymphoid", np.where(long, "stromal", "neoplastic"))
    return scored(apply_regression(known, table, dye).names, kinds, counted) | {
        "constant": round(1 / len(counted), 3),
        "rule_of_size_and_shape": scored(rule, kinds, counted)["balanced_accuracy"],
    }


def tls_tile(shared: Path, found: Segment, known: Coefficients, at_mpp: float) -> Any:
    """Share called lymphoid of nuclei that another model marked as lymphocytes, and of the rest."""
    import cv2

    mpp = 0.25
    picture = read(shared / "tls_tile/he_tls_tile.png", mpp, at_mpp)
    nuclei = found(picture, at_mpp)
    table = np.hstack([nuclei.table, surroundings(nuclei, picture, at_mpp)])
    mask = cv2.imread(str(shared / "tls_tile/lymphocyte_mask.png"), 0) > 127
    place = ((table[:, :2] + 0.5) * at_mpp / mpp).astype(int).clip(0, 1023)
    marked = mask[place[:, 1], place[:, 0]]
    lymphoid = apply_regression(known, table, dye_strength([picture])).select_type("lymphoid")
    before = lymphocyte_like(table)
    return {
        "marked": int(marked.sum()), "others": int((~marked).sum()),
        "lymphoid_of_marked": round(float(lymphoid[marked].mean()), 3),
        "lymphoid_of_others": round(float(lymphoid[~marked].mean()), 3),
        "darkness_rule_of_marked": round(float(before[marked].mean()), 3),
        "darkness_rule_of_others": round(float(before[~marked].mean()), 3),
    }  # fmt: skip


def main() -> None:
    """Print all figures; with --write, the card."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shared", type=Path, required=True, help="folder with histology/")
    parser.add_argument("--write", action="store_true", help="write the card that ships")
    parser.add_argument(
        "--keep", nargs="*", default=[], help="ways whose coefficients stay; they are only measured"
    )
    options = parser.parse_args()
    shared = options.shared / "histology"
    if not shared.is_dir():
        shared = options.shared
    folder = data_folder("models")
    text = (folder / REGIONS).read_text()
    regions = json.loads(text)["regions"]
    ways: dict[str, tuple[Segment, float]] = {
        "classical": (segment, 0.5), "survey": (segment, 1.0), "classical_around": (segment, 0.5),
    }  # fmt: skip
    from mcp_servers.pathology.nuclei_net.model import NucleiNetwork, shipped_network

    path = shipped_network()
    if path is not None:
        ways["network"] = (NucleiNetwork(path).segment, 0.5)
    card: dict[str, Any] = {
        "types": TYPES,
        "labels": "regions that hold almost only one kind of nucleus, outlined by eye and by no "
        "pathologist, of five slides: lung (2 patients), breast (2 fields), skin (1); for "
        "classical and survey also one painted slide",
        "regions_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "seed": SEED,
        "script": "benchmarks/nuclei_types.py",
        "license": "sources: BSD-3 (til_patches), BSD-like (stain_pair), CC0 (CMU-1)",
        "regressions": {},
    }
    for name, (found, at_mpp) in ways.items():
        given = labelled(regions, shared, found, at_mpp)
        names = ALONE if name in ("classical", "survey") else FEATURES
        if names == ALONE:  # so that the painted slides of tests and examples are typed
            parts = zip(given, painted(found, at_mpp), strict=True)
            given = tuple(np.concatenate(pair) for pair in parts)
        if name in options.keep:
            old = types_card()["regressions"][name]
            known, others = Coefficients.model_validate(old), old["left_out"]
        else:
            known, others = fit(*given, names), left_out(*given, names)
        figures = {
            "left_out": others,
            "held_out": held_out(shared, found, known, at_mpp),
            "tls_tile": tls_tile(shared, found, known, at_mpp),
        }
        card["regressions"][name] = known.model_dump(include={*Coefficients.model_fields}) | figures
        print(name, json.dumps(figures, indent=1))
    if options.write:
        (folder / CARD).write_text(json.dumps(card, indent=1) + "\n")


if __name__ == "__main__":
    main()

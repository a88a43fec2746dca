"""Accuracy of the slide tools, against planted truth and against labelled images.

    python -m benchmarks.slide_accuracy [--shared FOLDER] [--seeds 101 102 ...]

The seeds differ from those on which constants were chosen. The labelled images are few; the text
beside each figure says which of them were looked at while constants were chosen.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots

Points = NDArray[np.float64]


def matched(found: Points, truth: Points, radius: float) -> int:
    """One-to-one pairs within a radius, nearest first."""
    from scipy.spatial import cKDTree

    if not len(found) or not len(truth):
        return 0
    distance, index = cKDTree(truth).query(found, k=4, distance_upper_bound=radius)
    pairs = sorted(
        (float(distance[i, k]), i, int(index[i, k]))
        for i in range(len(found))
        for k in range(4)
        if np.isfinite(distance[i, k])
    )
    used_found: set[int] = set()
    used_truth: set[int] = set()
    for _, i, j in pairs:
        if i not in used_found and j not in used_truth:
            used_found.add(i)
            used_truth.add(j)
    return len(used_found)


def f1(pairs: int, found: int, truth: int) -> tuple[float, float, float]:
    """Precision, recall, F1."""
    precision, recall = pairs / max(found, 1), pairs / max(truth, 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def run(context: ToolContext, name: str, /, **arguments: Any) -> dict[str, Any]:
    """One tool's result."""
    return (
        load("training" if name == "patch_train" else "pathology")
        .run(name, arguments, context)
        .result
    )


def held(mask: Any, points: Any, mpp: float) -> float:
    """Share of points (level-0 pixels) that a mask of 8 µm cells holds."""
    cells = np.minimum((points * mpp / 8).astype(int), np.array(mask.shape)[::-1] - 1)
    return float(mask[cells[:, 1], cells[:, 0]].mean())


def outlines(truth: Any) -> list[dict[str, Any]]:
    """Squares of 64 µm that hold nuclei of one kind only, as a pathologist would pick them."""
    from mcp_servers.formats.geojson import feature, square

    side = 64 / truth.mpp
    kinds = {
        "Tumor": truth.tumor_nuclei,
        "Stroma": truth.stroma_nuclei,
        "Immune": truth.lymphocytes,
    }
    shape = (int(truth.height / side), int(truth.width / side))
    counts = {}
    for name, points in kinds.items():
        grid = np.zeros(shape, int)
        cells = np.minimum((points / side).astype(int), np.array(shape[::-1]) - 1)
        np.add.at(grid, (cells[:, 1], cells[:, 0]), 1)
        counts[name] = grid
    least = {"Tumor": 10, "Stroma": 3, "Immune": 30}
    out = []
    for name, grid in counts.items():
        others = sum(g for other, g in counts.items() if other != name)
        for row, column in np.argwhere((grid >= least[name]) & (others <= 1)):
            out.append(feature(square(column * side, row * side, side, name)))
    return out


def simulated(folder: Path, seeds: list[int], mpp: float) -> None:
    """Nuclei, aggregates and tumor on painted slides of 3072 x 3072 px."""
    import pandas as pd
    from PIL import Image

    from validation.simulate.slide import render_slide

    nuclei, tls, areas, tumor, immune = [], [0, 0, 0], [], [], []
    for seed in seeds:
        path = folder / f"sim{seed}.tif"
        truth = render_slide(path, seed=seed, size_px=3072, mpp=mpp, aggregates=4)
        context = ToolContext(Roots.of([folder], folder / "out"))
        result = run(context, "nuclei", slide=path.name, outlines=False)
        table = pd.read_csv(folder / "out" / result["table"])
        found = table[["x", "y"]].to_numpy()
        every = np.concatenate([truth.tumor_nuclei, truth.stroma_nuclei, truth.lymphocytes])
        nuclei.append(f1(matched(found, every, 4.0 / mpp), len(found), len(every)))
        small = found[table["lymphocyte_like"].to_numpy()]
        hits = matched(small, truth.lymphocytes, 4.0 / mpp)
        immune.append(f1(hits, len(small), len(truth.lymphocytes)))
        result = run(context, "tls", slide=path.name)
        got = np.array([[a["x"], a["y"], a["area_um2"]] for a in result["aggregates"]])
        got = got.reshape(-1, 3)
        for aggregate in truth.aggregates:
            if np.pi * (aggregate.radius * mpp) ** 2 < 10_000:  # below the tool's least area
                continue
            tls[2] += 1
            away = np.hypot(got[:, 0] - aggregate.x, got[:, 1] - aggregate.y)
            if len(away) and away.min() < aggregate.radius:
                tls[0] += 1
                planted = np.pi * (aggregate.radius * mpp) ** 2
                areas.append(got[away.argmin(), 2] / planted - 1)
        tls[1] += len(got)
        result = run(context, "tumor", slide=path.name)
        mask = np.asarray(Image.open(folder / "out" / result["mask"])) > 0
        groups = (truth.tumor_nuclei, truth.stroma_nuclei, truth.lymphocytes)
        tumor.append([held(mask, group, mpp) for group in groups])
    p, r, f = np.mean(nuclei, axis=0)
    print(f"simulated, {mpp} µm/px: nuclei precision {p:.3f} recall {r:.3f} F1 {f:.3f}")
    p, r, f = np.mean(immune, axis=0)
    print(f"simulated, {mpp} µm/px: lymphocyte-like precision {p:.3f} recall {r:.3f} F1 {f:.3f}")
    p, r, f = f1(*tls)
    error = np.mean(np.abs(areas)) if areas else float("nan")
    print(
        f"simulated, {mpp} µm/px: aggregates {tls[0]} of {tls[2]} found, {tls[1] - tls[0]} false, "
        f"area off by {error:.1%} on average"
    )
    t, s, i = np.mean(tumor, axis=0)
    print(
        f"simulated, {mpp} µm/px: tumor mask holds {t:.1%} of tumor, {s:.1%} of stroma, {i:.1%} of "
        "lymphocyte nuclei"
    )


def germinal_centers(folder: Path, seeds: list[int]) -> None:
    """Planted germinal centers, as painted and with the image made worse."""
    import tifffile
    from PIL import Image

    from validation.simulate.slide import render_slide

    found: dict[str, list[int]] = {}
    for seed in seeds:
        path = folder / f"gc{seed}.tif"
        truth = render_slide(path, seed=seed, size_px=2600, aggregates=4, germinal_centers=2)
        image = tifffile.imread(path, level=0)
        for what, picture in [("as painted", image), *variants(image, truth.mpp)]:
            Image.fromarray(picture).save(folder / "gc.png")
            context = ToolContext(Roots.of([folder], folder / "out"))
            result = run(context, "tls", slide="gc.png", mpp=truth.mpp)
            rows = result["aggregates"]
            right = [
                min(rows, key=lambda row, a=a: np.hypot(row["x"] - a.x, row["y"] - a.y), default={})
                for a in truth.aggregates
                if a.core
            ]
            hits = len({(row["x"], row["y"]) for row in right if row and row["germinal_centers"]})
            totals = found.setdefault(what, [0, 0, 0, 0])
            totals[0] += hits
            totals[1] += len(right)
            totals[2] += (result["germinal_centers"] or 0) - hits
            totals[3] += result["doubtful_germinal_centers"]
    for what, (hits, planted, false, doubtful) in found.items():
        print(
            f"germinal centers, {what}: {hits} of {planted} found, {false} false, "
            f"{doubtful} doubtful"
        )


def learned(folder: Path, train: list[int], test: list[int], mpp: float = 0.5) -> None:
    """Tumor by a patch classifier trained on some painted slides, on others."""
    from PIL import Image

    from mcp_servers.formats.geojson import write_geojson
    from validation.simulate.slide import render_slide

    (folder / "slides").mkdir()
    (folder / "regions").mkdir()
    truths = {}
    for seed in (*train, *test):
        where = folder / "slides" if seed in train else folder
        path = where / f"train{seed}.tif"
        truths[seed] = render_slide(path, seed=seed, size_px=3072, mpp=mpp, aggregates=4)
        if seed in train:
            write_geojson(folder / "regions" / f"train{seed}.geojson", outlines(truths[seed]))
    context = ToolContext(Roots.of([folder], folder / "out"))
    model = run(context, "patch_train", slides="slides", regions="regions", folds=3)
    print(
        f"patch_train on {len(train)} painted slides: held-out balanced accuracy "
        f"{model['balanced_accuracy']:.3f} on {model['patches']} plain tiles"
    )
    for label, extra in (("classical", {}), ("learned", {"model": model["model"]})):
        shares = []
        for seed in test:
            result = run(context, "tumor", slide=f"train{seed}.tif", **extra)
            mask = np.asarray(Image.open(folder / "out" / result["mask"])) > 0
            truth = truths[seed]
            groups = (truth.tumor_nuclei, truth.stroma_nuclei, truth.lymphocytes)
            shares.append([held(mask, points, mpp) for points in groups])
        t, s, i = np.mean(shares, axis=0)
        print(f"tumor mask of {len(test)} other painted slides, {label}: holds {t:.1%} of tumor, "
              f"{s:.1%} of stroma, {i:.1%} of lymphocyte nuclei")  # fmt: skip


def labelled(folder: Path, shared: Path) -> None:
    """The labelled images of the shared data."""
    import cv2
    import pandas as pd
    from PIL import Image

    def centers(mask: Any) -> Points:
        _, _, stats, where = cv2.connectedComponentsWithStats(mask.astype(np.uint8), connectivity=4)
        return where[1:][stats[1:, 4] >= 20]

    for name in ("Bladder1", "Lung1"):
        strip = np.asarray(Image.open(shared / f"ihc_deepliif/{name}.png").convert("RGB"))
        panel = strip[:, -512:].astype(int)
        red, green, blue = panel[..., 0], panel[..., 1], panel[..., 2]
        positive = centers((red > 150) & (green < 100) & (blue < 100))
        negative = centers((blue > 150) & (green < 100) & (red < 100))
        Image.fromarray(strip[:, :512]).save(folder / f"{name}.png")
        context = ToolContext(Roots.of([folder], folder / "out"))
        result = run(context, "ihc", slide=f"{name}.png", mpp=0.25)
        found = pd.read_csv(folder / "out" / result["table"])[["x", "y"]].to_numpy()
        truth = np.concatenate([positive, negative])
        p, r, f = f1(matched(found, truth, 16), len(found), len(truth))
        share = 100 * len(positive) / len(truth)
        print(
            f"{name} (Ki67, DeepLIIF's segmentation): nuclei precision {p:.3f} recall {r:.3f} "
            f"F1 {f:.3f}; positive {result['percent_positive'] or 0:.1f}% against {share:.1f}%"
        )
    context = ToolContext(Roots.of([shared], folder / "out"))
    result = run(context, "nuclei", slide="tls_tile/he_tls_tile.png", mpp=0.25)
    found = pd.read_csv(folder / "out" / result["table"])[["x", "y"]].to_numpy()
    truth = centers(np.asarray(Image.open(shared / "tls_tile/lymphocyte_mask.png")) > 127)
    p, r, f = f1(matched(found, truth, 16), len(found), len(truth))
    print(
        f"TLS tile (another model's lymphocytes): {len(found)} nuclei, of its {len(truth)} "
        f"lymphocytes {r:.3f} found, {p:.3f} of ours are among them"
    )
    tile = run(context, "tls", slide="tls_tile/he_tls_tile.png", mpp=0.3)
    print(f"TLS tile: {tile['count']} aggregate, {tile['area_fraction'] or 0:.2f} of the tissue")
    labels = dict(
        line.split()[:2] for line in (shared / "til_patches/label.txt").read_text().splitlines()
    )
    patches = sorted((shared / "til_patches").glob("*.png"), key=lambda path: int(path.stem))
    densities, counted, fields = [], 0, 0
    for path in patches:
        result = run(context, "til", slide=f"til_patches/{path.name}", mpp=0.5)
        densities.append(result["tissue"]["per_mm2"] or 0.0)
        # 150 µm hold few aggregates: laid out with their mirror images they make 600 µm
        item = np.asarray(Image.open(path).convert("RGB"))
        two = np.hstack([item, item[:, ::-1]])
        field = np.tile(np.vstack([two, two[::-1]]), (2, 2, 1))
        Image.fromarray(field).save(folder / f"mirrored_{path.name}")
        own = ToolContext(Roots.of([folder], folder / "out"))
        for at_mpp in (1.0, 0.5):
            result = run(own, "tls", slide=f"mirrored_{path.name}", mpp=0.5, at_mpp=at_mpp)
            counted += result["count"]
            fields += 1
    kinds = {labels[patch.name] for patch in patches}
    print(
        f"lymphocyte patches: {len(patches)} with labels {sorted(kinds)}; "
        f"{sum(d > 5000 for d in densities)} above 5,000 per mm², median {np.median(densities):.0f}"
        f"; {counted} aggregates in {fields} mirrored fields"
    )
    for number in (70, 72, 74, 76):
        name = f"necrosis_masks/image_{number}.png"
        result = run(context, "tls", slide=name, mpp=1.0)
        print(f"{name}: {result['count']} aggregates counted, {result['rejected']} rejected")
    for what, tile in variants(np.asarray(Image.open(shared / "tls_tile/he_tls_tile.png"))):
        Image.fromarray(tile).save(folder / "variant.png")
        own = ToolContext(Roots.of([folder], folder / "out"))
        result = run(own, "tls", slide="variant.png", mpp=0.3)
        calls = ", ".join(
            f"{a['call']} ({a['regular_nuclei']:.2f} regular, contrast {a['contrast']:.1f})"
            for a in result["aggregates"]
        )
        print(f"TLS tile, {what}: {calls or 'none'}; {result['rejected']} rejected")


def variants(image: Any, mpp: float = 0.3) -> list[tuple[str, Any]]:
    """The image blurred, paler, darker, and stored badly."""
    import cv2

    def dyed(factor: float) -> Any:
        return np.clip(245 * (np.maximum(image, 1) / 245) ** factor, 0, 255).astype(np.uint8)

    _, coded = cv2.imencode(".jpg", image[:, :, ::-1], [cv2.IMWRITE_JPEG_QUALITY, 30])
    jpeg = cv2.imdecode(coded, cv2.IMREAD_COLOR)[:, :, ::-1]
    out = [(f"blurred by {s:g} µm", cv2.GaussianBlur(image, (0, 0), s / mpp)) for s in (0.7, 1.5)]
    out += [(f"dyes x {f:g}", dyed(f)) for f in (0.5, 1.4)]
    return [*out, ("JPEG of quality 30", np.ascontiguousarray(jpeg))]


def main() -> None:
    """Print all figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--shared", type=Path, help="folder with the labelled histology images")
    parser.add_argument("--seeds", type=int, nargs="+", default=[101, 102, 103, 104, 105])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for mpp in (0.5, 0.25):
            simulated(folder, options.seeds if mpp == 0.5 else options.seeds[:2], mpp)
        germinal_centers(folder, [seed + 500 for seed in options.seeds])
        learned(folder, [201, 202, 203], [204, 205, 206])
        if options.shared:
            shared = options.shared.resolve()
            inner = shared / "histology"
            labelled(folder, inner if inner.is_dir() else shared)


if __name__ == "__main__":
    main()

"""Speed of the slide tools on a synthesized 40,000 x 40,000 px slide with 45% tissue.

    python -m benchmarks.slides [--size 40000] [--slide PATH] [--json OUT] [--quick]
                                [--peers FOLDER] [--peer NAME=PYTHON] [--cores 2] [--markdown]

The slide is a tiled pyramidal JPEG SVS at 0.25 µm per pixel, painted once (about a minute) and
kept. Peers (histolab, LazySlide, tiatoolbox) run after SAGE on the same file, on the same cores,
each by the Python of its own environment (see `benchmarks.peers.setup`); without one a peer is
named as not installed. Times are medians after a warm-up, with the best beside them; peak memory
is that of each process.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.peer import peak_mb
from mcp_servers.context import ToolContext
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from mcp_servers.slides.pyramid import write_pyramid
from mcp_servers.slides.slide import Slide

MPP = 0.25


def synthesize(path: Path, size: int, tissue_share: float = 0.45) -> None:
    """Write a slide of `size` px a side: painted cells under a smooth random tissue outline."""
    import cv2

    from validation.simulate.slide import render_slide

    with tempfile.TemporaryDirectory() as folder:
        painted = Path(folder) / "texture.tif"
        render_slide(painted, seed=11, size_px=4096, mpp=MPP, aggregates=2)
        with Slide.open(painted) as slide:  # the middle of the painting is all tissue
            texture = slide.read(1024, 1024, 2048, 2048)
    rng = np.random.default_rng(5)
    coarse = cv2.GaussianBlur(rng.standard_normal((256, 256)).astype(np.float32), (0, 0), 14)
    edge = np.minimum(np.arange(256), np.arange(256)[::-1]) / 128
    coarse = coarse / coarse.std() + 1.5 * np.minimum(edge[:, None], edge[None, :])
    mask = (coarse > np.quantile(coarse, 1 - tissue_share)).astype(np.uint8)
    repeats = -(-size // texture.shape[1])
    wide = np.tile(texture, (1, repeats, 1))[:, :size]

    def band(top: int, rows: int) -> np.ndarray[Any, Any]:
        at = np.arange(top, top + rows)
        out = wide[at % texture.shape[0]]
        lines = (at * 256) // size
        columns = (np.arange(size) * 256) // size
        for line in np.unique(lines):
            empty = ~mask[line].astype(bool)[columns]
            where = np.flatnonzero(lines == line)
            out[where[0] : where[-1] + 1, empty] = 243
        return out

    temporary = path.with_name(f".{path.name}.part")
    write_pyramid(temporary, size, size, band, mpp=MPP)
    temporary.replace(path)


def timed(call: Callable[[], Any], repeats: int) -> tuple[float, float, Any]:
    """Median and least seconds over repeats after one warm-up, and the last answer."""
    answer = call()
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        answer = call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds), min(seconds), answer


def mask_and_tiles(path: Path) -> int:
    """Open, mask, coordinates of 256 px tiles with at least half tissue."""
    from mcp_servers.pathology.tiles import TilesInput, tile_grid
    from mcp_servers.pathology.tissue import slide_tissue

    context = ToolContext(Roots.of([path.parent], path.parent))
    with Slide.open(path) as slide:
        found, view = slide_tissue(slide)
        given = TilesInput(slide=str(path), tile_px=256, at_mpp=MPP)
        corners, _, _ = tile_grid(slide, found.mask, view.scale, given, context)
    return len(corners)


def read_tiles(path: Path, count: int, backend: str) -> int:
    """Read aligned 256 px tiles of level 0 across the middle of the slide."""
    with Slide.open(path, backend=backend) as slide:  # type: ignore[arg-type]
        columns = slide.width // 256
        first = (slide.height // 512) * columns
        corners = [((i % columns) * 256, (i // columns) * 256) for i in range(first, first + count)]
        return sum(1 for _ in slide.tiles(corners, 256))


def nuclei_field(path: Path) -> tuple[Callable[[], int], np.ndarray[Any, Any]]:
    """Nuclei of 1024 x 1024 px at 40x, tissue in full."""
    import cv2

    from mcp_servers.pathology.compute.nuclei import segment
    from mcp_servers.pathology.tissue import slide_tissue

    with Slide.open(path) as slide:
        found, view = slide_tissue(slide)
        depth = cv2.distanceTransform(found.mask.astype(np.uint8), cv2.DIST_L2, 3)
        row, column = np.unravel_index(int(depth.argmax()), depth.shape)
        x, y = int(column * view.scale) - 512, int(row * view.scale) - 512
        field = slide.read(x, y, 1024, 1024)

    def run() -> int:
        half = cv2.resize(field, (512, 512), interpolation=cv2.INTER_AREA)
        return len(segment(np.asarray(half, dtype=np.uint8), 2 * MPP).table)

    return run, field


def run_tool(name: str, path: Path, out: Path, **options: Any) -> Callable[[], dict[str, Any]]:
    """A call of a registered tool as a worker makes it, nothing kept from the call before."""
    registry = load("pathology")

    def run() -> dict[str, Any]:
        context = ToolContext(Roots.of([path.parent], out), threads=2)
        try:
            return registry.run(name, {"slide": path.name, **options}, context).result
        finally:
            context.handles.clear()

    return run


def skimage_nuclei(field: np.ndarray[Any, Any]) -> Callable[[], int]:
    """The usual recipe: HED, Otsu, distance transform, watershed."""
    from scipy import ndimage
    from skimage.color import rgb2hed
    from skimage.feature import peak_local_max
    from skimage.filters import gaussian, threshold_otsu
    from skimage.measure import regionprops_table
    from skimage.morphology import remove_small_objects
    from skimage.segmentation import watershed

    def run() -> int:
        stain = gaussian(rgb2hed(field)[..., 0], 1)
        mask = remove_small_objects(stain > threshold_otsu(stain), max_size=80)
        distance = ndimage.distance_transform_edt(mask)
        peaks = peak_local_max(distance, min_distance=7, labels=ndimage.label(mask)[0])
        markers = np.zeros(mask.shape, dtype=int)
        markers[tuple(peaks.T)] = np.arange(1, len(peaks) + 1)
        labels = watershed(-distance, markers, mask=mask)
        wanted = ("area", "perimeter", "eccentricity", "solidity")
        return len(regionprops_table(labels, properties=wanted)["area"])

    return run


PEERS = ("histolab", "lazyslide", "tiatoolbox")


def peer_pythons(folder: Path | None, named: list[str]) -> dict[str, Path | None]:
    """The interpreter of each peer's environment, None where there is none.

    Raises `ValueError` when a named one is no peer or no file.
    """
    pythons: dict[str, Path | None] = dict.fromkeys(PEERS)
    for name in PEERS if folder is not None else ():
        python = folder / name / "bin" / "python"
        pythons[name] = python if python.exists() else None
    for text in named:
        name, _, python_path = text.partition("=")
        if name not in PEERS or not Path(python_path).is_file():
            raise ValueError(f"--peer {text}: give NAME=PYTHON, NAME one of {', '.join(PEERS)}")
        pythons[name] = Path(python_path)
    return pythons


def run_peer(name: str, python: Path, slide: Path, repeats: int) -> dict[str, Any] | str:
    """What the peer's script measured, or why it could not."""
    script = Path(__file__).parent / "peers" / f"{name}_peer.py"
    # its own environment only: PYTHONPATH would let SAGE's packages in
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    command = [str(python), str(script), str(slide), "--repeats", str(repeats)]
    try:
        done = subprocess.run(
            command, env=inherited, capture_output=True, text=True, timeout=1200, check=True
        )
        answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return "stopped after 20 minutes"
    except subprocess.CalledProcessError as error:
        return f"failed: {(error.stderr.strip().splitlines() or ['no message'])[-1]}"
    except (OSError, ValueError, IndexError) as error:
        return f"failed: {error}"
    return answer


def markdown(rows: list[dict[str, Any]]) -> str:
    """The measured rows as the table of docs/slides.md: a line per task, medians, best behind."""
    who = list(dict.fromkeys(row["who"] for row in rows if row["who"] != "this machine"))
    lines = ["| what | " + " | ".join(who) + " |", "|---" * (len(who) + 1) + "|"]
    for task in dict.fromkeys(row["task"] for row in rows if row["who"] in who):
        cells = []
        for item in who:
            found = next((r for r in rows if r["task"] == task and r["who"] == item), None)
            if found is None or found["value"] is None:
                cells.append(found["note"] if found else "")
                continue
            best = "" if found["best"] is None else f" ({found['best']:,.3g})"
            cells.append(f"{found['value']:,.3g}{best} {found['unit']}")
        lines.append(f"| {task} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Run all and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", type=int, default=40_000)
    parser.add_argument("--slide", type=Path, help="keep or reuse the slide here")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peers", type=Path, help="folder of environments, one per peer")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON")
    parser.add_argument("--cores", type=int, default=2, help="of the machine, for all")
    parser.add_argument("--markdown", action="store_true", help="the table once more, for docs")
    parser.add_argument("--quick", action="store_true", help="one repeat, 10x only")
    options = parser.parse_args()
    try:
        peers = peer_pythons(options.peers, options.peer)
    except ValueError as error:
        parser.error(str(error))
    cores = sorted(os.sched_getaffinity(0))[: options.cores]
    os.sched_setaffinity(0, cores)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"the machine is not idle (load {load:.1f}): figures will be worse", file=sys.stderr)
    work = Path(tempfile.gettempdir()) / "sage-bench"
    work.mkdir(exist_ok=True)
    path = options.slide or work / f"slide-{options.size}.svs"
    if not path.exists():
        print(f"painting {path} ...", file=sys.stderr)
        synthesize(path, options.size)
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forget painting's peak
    out = work / "out"
    rows: list[dict[str, Any]] = []

    def row(
        task: str, who: str, value: float | None, unit: str, note: str, best: float | None = None
    ) -> None:
        line = {"task": task, "who": who, "value": value, "best": best, "unit": unit, "note": note}
        rows.append(line)
        shown = "-" if value is None else f"{value:,.3g} {unit}"
        least = "" if best is None else f"best {best:,.3g}"
        print(f"{task:31s} {who:18s} {shown:>14s}  {least:13s} {note}", flush=True)

    row("load before, cores used", "this machine", load, "", f"{len(cores)} cores")
    mask, read, nuclei = (
        "mask + 256 px tile coordinates",
        "reading aligned JPEG tiles",
        "nuclei, 1024 px at 40x",
    )
    repeats = 1 if options.quick else 5
    seconds, best, tiles = timed(lambda: mask_and_tiles(path), repeats)
    row(mask, "SAGE", seconds, "s", f"{tiles} tiles", best)
    count = min(4000, (options.size // 256) ** 2 // 4)
    for who, backend in (("SAGE", "auto"), ("OpenSlide", "openslide")):
        seconds, best, got = timed(lambda b=backend: read_tiles(path, count, b), repeats)
        row(read, who, got / seconds, "tiles/s", "a thread per core", got / best)
    run, field = nuclei_field(path)
    for who, call in (("SAGE", run), ("scikit-image", skimage_nuclei(field))):
        seconds, best, found = timed(call, repeats)
        row(nuclei, who, seconds * 1e3, "ms", f"{found} nuclei", best * 1e3)
    for label, at_mpp in (("10x", 1.0), ("20x", 0.5))[: 1 if options.quick else 2]:
        start, cpu = time.perf_counter(), time.process_time()
        result = run_tool("tls", path, out, at_mpp=at_mpp)()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        note = f"{result['count']} found; {cpu:.1f} s of CPU"
        row(f"TLS on the whole slide, {label}", "SAGE", seconds, "s", note)
    peak_of = "peak memory of all the above"
    row(peak_of, "SAGE", peak_mb(), "MiB", "")
    for name, python in peers.items():
        if python is None:
            row(mask, name, None, "", "not installed: python -m benchmarks.peers.setup")
            continue
        peer = run_peer(name, python, path, min(repeats, 3))
        if isinstance(peer, str):
            row(mask, name, None, "", peer)
            continue
        who = f"{name} {peer['version']}"
        note = f"{peer['tiles']} tiles; {peer['way']}"
        row(mask, who, peer["mask_seconds"], "s", note, peer["mask_best"])
        row(read, who, peer["read_per_second"], "tiles/s", peer["read_way"], peer["read_best"])
        row(nuclei, who, None, "", peer["nuclei"])
        row(peak_of, who, peer["peak_mb"], "MiB", "")
    if options.markdown:
        print("\n" + markdown(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Tiles per second of a patch encoder, on the GPU when there is one, else on the CPU.

    python -m benchmarks.encoders [--encoder phikon] [--weights FOLDER] [--device auto]
        [--batch N] [--tiles N] [--slide PATH] [--at-mpp 0.5] [--peak-tflops 989] [--json OUT]

Two figures: the network alone on patches already in memory, and `encode_tiles` on a slide, with
reading, resizing and writing. Without --weights the architecture runs with random weights, which
costs the same time and gives features without meaning; the output says so. Floating-point
operations are counted by PyTorch on one patch (a multiplication and an addition are two), so the
share of --peak-tflops (the card's, in the precision of the autocast) is of useful work.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.peers.peer import peak_mb
from mcp_servers.context import ToolContext
from mcp_servers.pathology import models, networks
from mcp_servers.registry import load
from mcp_servers.roots import Roots
from sage.core.errors import InputError


def operations(network: Any, side: int) -> float:
    """Floating-point operations of one patch, attention among them."""
    device = next(network.parameters()).device
    plain = sdpa_kernel(SDPBackend.MATH)  # the fused kernels of the CPU are not counted
    with torch.inference_mode(), plain, FlopCounterMode(display=False) as counted:
        network(torch.zeros(1, 3, side, side, device=device))
    return float(counted.get_total_flops())


def network_alone(encoder: models.Encoder, side: int, batch: int, tiles: int, device: str) -> float:
    """Patches per second, patches in memory; median of three rounds after a warm-up."""
    rng = np.random.default_rng(0)
    stacked = encoder.stack(list(rng.integers(0, 256, (batch, side, side, 3), dtype=np.uint8)))
    rounds = max(1, tiles // batch)
    encoder.encode(stacked)
    speeds = []
    for _ in range(3):
        start = time.perf_counter()
        for _ in range(rounds):
            encoder.encode(stacked)
        if device.startswith("cuda"):
            torch.cuda.synchronize()
        speeds.append(rounds * batch / (time.perf_counter() - start))
    return statistics.median(speeds)


def slide_for(path: Path | None, work: Path) -> Path:
    """The slide to encode: the given one, or a painted 4096 px one at 0.25 µm per pixel."""
    if path is not None:
        return path
    from validation.simulate.slide import render_slide

    painted = work / "encode.tif"
    render_slide(painted, seed=11, size_px=4096, mpp=0.25, aggregates=2)
    return painted


def whole_tool(
    encoder: models.Encoder, options: argparse.Namespace, device: str, patch: int
) -> tuple[float, int]:
    """Tiles per second of encode_tiles with this encoder already loaded, and how many tiles."""
    with tempfile.TemporaryDirectory() as folder:
        slide = slide_for(options.slide, Path(folder))
        roots = Roots.of([slide.parent], Path(folder) / "out")
        context = ToolContext(roots, memory_mb=options.memory_mb, device=device)
        given: dict[str, Any] = {"slide": slide.name, "encoder": options.encoder, "device": device}
        given |= {"tile_px": patch, "at_mpp": options.at_mpp}
        original = models.load_encoder
        models.load_encoder = lambda *_: encoder  # loaded above, with random weights perhaps
        try:
            registry = load("pathology")
            start = time.perf_counter()
            result = registry.run("encode_tiles", given, context).result
            seconds = time.perf_counter() - start
        finally:
            models.load_encoder = original
            context.handles.clear()
    return result["tiles"] / seconds, result["tiles"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    names = [name for name in models.ENCODERS if name != "handcrafted"]
    parser.add_argument("--encoder", default="phikon", choices=names)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batch", type=int, help="from the free memory when absent")
    parser.add_argument("--tiles", type=int, help="per round; 2048 on a GPU, 32 on a CPU")
    parser.add_argument("--memory-mb", type=int, default=2048, help="to plan for on a CPU")
    parser.add_argument("--slide", type=Path)
    parser.add_argument("--at-mpp", type=float, default=0.5)
    parser.add_argument("--peak-tflops", type=float)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    try:
        answer = measure(options)
    except InputError as error:
        parser.error(str(error))
    for key, value in answer.items():
        shown = f"{value:,.4g}" if isinstance(value, float) else value
        print(f"{key:34s} {shown}")
    if options.json:
        options.json.write_text(json.dumps(answer, indent=1) + "\n", encoding="utf-8")


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """All figures of one encoder."""
    spec = models.encoder_spec(options.encoder)
    device = models.choose_device(options.device)
    cuda = device.startswith("cuda")
    start = time.perf_counter()
    if options.weights is not None:
        network = networks.load_network(spec, options.weights)
    else:
        network = networks.random_network(spec)
    encoder = models.network_encoder(network, spec, device)
    loading = time.perf_counter() - start
    flops = operations(network, spec.patch_px)
    planned = ToolContext(Roots((), Path()), memory_mb=options.memory_mb, device=device)
    batch = options.batch or planned.batch_size(encoder.mb_per_patch, 256 if cuda else 16)
    if options.batch:  # the tool then takes the same
        encoder = replace(encoder, mb_per_patch=options.memory_mb / 2 / options.batch)
    tiles = options.tiles or (2048 if cuda else 32)
    alone = network_alone(encoder, spec.patch_px, batch, tiles, device)
    through, count = whole_tool(encoder, options, device, spec.patch_px)
    tflops = alone * flops / 1e12
    answer: dict[str, Any] = {
        "encoder": spec.name,
        "weights": str(options.weights) if options.weights else "random: speed only",
        "device": torch.cuda.get_device_name(device) if cuda else f"CPU {platform.machine()}",
        "threads": torch.get_num_threads(),
        "load before": os.getloadavg()[0],
        "parameters, million": sum(p.numel() for p in network.parameters()) / 1e6,
        "precision": encoder.precision,
        "batch": batch,
        "loading, s": loading,
        "GFLOP per tile": flops / 1e9,
        "tiles/s, network alone": alone,
        "TFLOP/s achieved": tflops,
    }
    if options.peak_tflops:
        answer["share of peak"] = f"{tflops / options.peak_tflops:.1%} of {options.peak_tflops:g}"
    answer[f"tiles/s, encode_tiles ({count} tiles)"] = through
    if cuda:
        answer["GPU memory, MiB"] = torch.cuda.max_memory_allocated() / 2**20
    answer["peak memory, MiB"] = peak_mb()
    return answer


if __name__ == "__main__":
    main()

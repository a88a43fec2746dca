"""Training of the nuclei network, from labeled tiles to a safetensors file with a card."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mcp_servers.pathology.compute.nuclei import nuclear_strength
from mcp_servers.pathology.nuclei_net.model import (
    FORMAT,
    WORKING_MPP,
    NucleiCard,
    NucleiNetwork,
    read_card,
    save,
)
from mcp_servers.pathology.nuclei_net.network import WIDTHS, NucleiNet, densities
from mcp_servers.slides.arrays import F32, U8
from sage.core.files import replacing
from sage.core.seeds import generator
from sage_training.nuclei.examples import (
    Tile,
    content_hash,
    example,
    read_tiles,
    split_tiles,
)
from sage_training.nuclei.scoring import (
    BASELINE,
    CLASSICAL,
    at_working_size,
    means,
    own_methods,
    score_tiles,
)

BATCH = 12
PEAK_RATE = 3e-3
"""Peak learning rate, reached after a tenth of the steps, followed by cosine decay."""
AVERAGE = 0.995


def loss(out: Tensor, goal: Tensor, weight: Tensor) -> Tensor:
    """Compute cross-entropy and Dice loss for nuclei, and squared errors of depth and position."""
    logit, depth, place = out[:, 0], out[:, 1], out[:, 2:]
    nucleus = goal[:, 0]
    total = weight.sum().clamp(min=1.0)
    entropy = torch.nn.functional.binary_cross_entropy_with_logits(logit, nucleus, reduction="none")
    chance = torch.sigmoid(logit) * weight
    dice = 1 - (2 * (chance * nucleus).sum() + 1) / (chance.sum() + (nucleus * weight).sum() + 1)
    deep = (torch.sigmoid(depth) - goal[:, 1]) ** 2
    inside = (nucleus * weight)[:, None]
    offset = ((place - goal[:, 2:]) ** 2 * inside).sum() / (2 * inside.sum().clamp(min=1.0))
    return (entropy * weight).sum() / total + dice + 4 * (deep * weight).sum() / total + offset


def batches(
    tiles: list[Tile], seed: int, steps: range
) -> Iterator[tuple[int, list[tuple[U8, F32, F32]]]]:
    """Yield each step with its examples, which depend only on seed and step, made in advance."""

    def make_batch(step: int) -> list[tuple[U8, F32, F32]]:
        rng = generator(seed, step)
        return [example(tiles, rng) for _ in range(BATCH)]

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(make_batch, steps.start)
        for step in steps:
            batch = following.result()
            if step + 1 < steps.stop:
                following = pool.submit(make_batch, step + 1)
            yield step, batch


def train(
    tiles: list[Tile],
    *,
    steps: int,
    seed: int,
    checkpoint: Path | None = None,
    say: Callable[[str], None] = print,
) -> dict[str, Tensor]:
    """Train for `steps` steps, and return a moving average of the weights.

    Parameters
    ----------
    tiles : tiles from which examples are drawn uniformly
    steps : batches of `BATCH` examples
    seed : random seed for the examples and the initial weights
    checkpoint : file for weights every 100 steps, from which training resumes
    say : receives a line every 25 steps

    Returns
    -------
    State dictionary of `NucleiNet`.
    """
    torch.manual_seed(seed)
    net = NucleiNet()
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    kept = {name: value.detach().clone() for name, value in net.state_dict().items()}
    optimizer = torch.optim.AdamW(net.parameters(), lr=PEAK_RATE, weight_decay=1e-4)
    rates = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, PEAK_RATE, total_steps=steps, pct_start=0.1, final_div_factor=100
    )
    first = 0
    if checkpoint is not None and checkpoint.is_file():
        saved: dict[str, Any] = torch.load(checkpoint, weights_only=True)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        rates.load_state_dict(saved["rates"])
        kept, first = saved["kept"], saved["step"]
    net.train()
    began, recent = time.monotonic(), []
    for step, batch in batches(tiles, seed, range(first, steps)):
        images = torch.from_numpy(np.stack([image for image, _, _ in batch]))
        images = densities(images.permute(0, 3, 1, 2)).to(memory_format=torch.channels_last)
        goal = torch.from_numpy(np.stack([goal for _, goal, _ in batch]))
        weight = torch.from_numpy(np.stack([weight for _, _, weight in batch]))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = net(images)
        value = loss(out.float(), goal, weight)
        optimizer.zero_grad(set_to_none=True)
        value.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(net.parameters(), 2.0)
        optimizer.step()
        rates.step()
        recent.append(float(value.detach()))
        share = min(AVERAGE, (step + 1) / (step + 10))
        for name, now in net.state_dict().items():
            if now.is_floating_point():
                kept[name].mul_(share).add_(now.detach(), alpha=1 - share)
            else:
                kept[name].copy_(now)
        if (step + 1) % 25 == 0:
            pace = (time.monotonic() - began) / (step + 1 - first)
            say(f"step {step + 1} of {steps}: loss {np.mean(recent):.4f}, {pace:.2f} s per step")
            recent = []
        if checkpoint is not None and (step + 1) % 100 == 0:
            state = {
                "net": net.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rates": rates.state_dict(),
                "kept": kept,
                "step": step + 1,
            }
            torch.save(state, checkpoint.with_suffix(".part"))
            checkpoint.with_suffix(".part").replace(checkpoint)
    return kept


def measure_strength(tiles: list[Tile]) -> list[float] | None:
    """Measure the 1st, 50th and 99th percentile of the tiles' stain strength; None if unstained."""
    found = [nuclear_strength([at_working_size(tile)]) for tile in tiles]
    known = [strength for strength in found if strength is not None]
    return np.percentile(known, (1, 50, 99)).round(4).tolist() if known else None


def train_network(
    folder: Path,
    out: Path,
    *,
    name: str = "nuclei",
    steps: int,
    seed: int,
    mpp: float | None = None,
    license: str = "not stated",
    checkpoints: Path | None = None,
    say: Callable[[str], None] = print,
) -> NucleiCard:
    """Train on labeled tiles, score on held-out tiles, and write the network with its card.

    Parameters
    ----------
    folder : NAME.png and NAME_labels.png, one number per nucleus
    out : the safetensors file; a copy of the card is written beside it as JSON
    name : name of the network
    steps : batches of `BATCH` examples
    seed : random seed for the held-out tiles, the examples, and the initial weights
    mpp : µm per pixel of the tiles; None if unknown or varying
    license : license of the data, for the card
    checkpoints : folder for states every 100 steps, from which a stopped training resumes
    say : called with progress messages

    Returns
    -------
    The card, with the scores on the held-out tiles.

    Raises
    ------
    InputError
        If the folder has no usable tiles.
    """
    tiles = read_tiles(folder, mpp)
    training, held = split_tiles(tiles, seed)
    say(
        f"{len(training)} training tiles, {len(held)} held-out tiles: "
        + ", ".join(tile.name for tile in held)
    )

    kept = None if checkpoints is None else checkpoints / f"{out.stem}.pt"
    weights = train(training, steps=steps, seed=seed, checkpoint=kept, say=say)
    card = {
        "format": FORMAT,
        "name": name,
        "widths": list(WIDTHS),
        "mpp": WORKING_MPP,
        "seed": seed,
        "steps": steps,
        "license": license,
        "training_data": folder.name,
        "tiles": len(training),
        "data_sha256": content_hash(tiles),
        "strength": measure_strength(training),
        "held_out_tiles": [tile.name for tile in held],
        "held_out": {"data": folder.name, "tiles": len(held), "f1": 0.0, "dice": 0.0, "aji": 0.0,
                     "pq": 0.0},
    }  # fmt: skip
    out.parent.mkdir(parents=True, exist_ok=True)
    with replacing(out) as part:
        save(part, weights, card)
        network = NucleiNetwork(part)
        scored = score_tiles(
            held, own_methods() | {"network": lambda image: network.labels(image, WORKING_MPP)}
        )
        card["held_out"] = {"data": folder.name, "tiles": len(held), **means(scored, "network"),
                            BASELINE: means(scored, BASELINE),
                            CLASSICAL: means(scored, CLASSICAL)}  # fmt: skip
        save(part, weights, card)
    known = read_card(out)
    with replacing(out.with_suffix(".json")) as part:
        part.write_text(json.dumps(known.model_dump(), indent=2) + "\n")
    return known

"""Tissue to be named from words, and the weights that a user would bring: trained here, in seconds.

A pathology CLIP is not ours to ship. The twin trains a small CLIP on painted tissue with captions
and hands it to the tools as the user's weights, beside images and slides that it did not see. This
shows that the tools carry such a question with weights, and nothing about a pathology CLIP.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.adapters.slidequest_twins.twin import Row, training

SIDE = 224
"""Of a patch in pixels at 0.5 µm per pixel, as PLIP takes it."""
KINDS = ("carcinoma", "fibrous stroma", "lymphoid tissue")
CAPTIONS = ("An H&E image of {}", "{}", "a field of {}", "histology of {}")
GLASS = 225
"""The darkest channel of a pixel from which it shows no tissue."""
LETTERS = (*"abcdefghijklmnopqrstuvwxyz", "&")
STEPS, SLIDES, POOL, BATCH, RATE = 800, 10, 12, 6, 1e-3
"""Of training: steps, slides per kind, patches of each, of them in a batch, learning rate."""


def patients_to_name(folder: Path, rng: Generator, steps: int = STEPS) -> Row:
    """Four patches of each of three patients, one of another kind; the patient's kind.

    Weights are trained for `steps` steps; with 0 they stay as they were drawn.
    """
    from PIL import Image

    _weights(folder / "weights", rng, steps)
    (folder / "images").mkdir()
    fields = {kind: _patches(kind, rng, folder) for kind in KINDS}
    truth = {}
    for patient, number in enumerate(rng.permutation(len(KINDS))):
        kind = KINDS[number]
        shown = [kind, kind, kind, KINDS[(number + 1) % len(KINDS)]]
        for at, what in enumerate(rng.permutation(shown)):
            path = folder / "images" / f"p{patient}_{at}.png"
            Image.fromarray(next(fields[str(what)])).save(path)
        truth[f"p{patient}"] = kind
    return truth


def slides_to_name(folder: Path, rng: Generator, steps: int = STEPS) -> Row:
    """Three slides, each mostly of one kind of tissue; the kind. `steps` as above."""
    _weights(folder / "weights", rng, steps)
    truth = {}
    for slide, number in enumerate(rng.permutation(len(KINDS))):
        truth[f"s{slide}"] = KINDS[number]
        _paint(folder / f"s{slide}.tiff", KINDS[number], 1024, 0.15, rng)
    return truth


def _paint(path: Path, kind: str, size: int, rest: float, rng: Generator) -> None:
    """A slide of a kind of tissue; of its radius `rest` is stroma around, or hilum within."""
    from validation.simulate.slide import Scene, render_slide

    um = size / 2 * 0.5
    stain = (float(rng.uniform(0.92, 1.08)), float(rng.uniform(0.92, 1.08)))
    scene = Scene(stain=stain)
    if kind == "carcinoma":
        scene = Scene(tumor=((um, um, um * (1 - rest)),), stain=stain)
    elif kind == "lymphoid tissue":
        scene = Scene(hilum=(um, um, um * rest), stain=stain)
    render_slide(path, seed=int(rng.integers(1 << 30)), size_px=size, aggregates=[], scene=scene)


def _patches(kind: str, rng: Generator, folder: Path) -> Iterator[Any]:
    """Endless patches of a kind from a slide painted for them, most of each of them tissue."""
    from mcp_servers.slides.slide import Slide

    path, size = folder / "painted.tiff", 768
    _paint(path, kind, size, 0.0, rng)
    with Slide.open(path) as slide:
        held = slide.read(0, 0, size, size)
    path.unlink()
    while True:
        x, y = (int(v) for v in rng.integers(0, size - SIDE, 2))
        patch = held[y : y + SIDE, x : x + SIDE]
        if (patch.min(axis=2) < GLASS).mean() > 0.6:
            yield patch


def _weights(folder: Path, rng: Generator, steps: int) -> None:
    """Train a CLIP on patches with captions, and write it in the layout of transformers."""
    if find_spec("torch") is None or find_spec("transformers") is None:
        return  # the tools lack them too: they say so, and the twin is not solved
    from transformers import CLIPModel
    from transformers.utils import logging

    with training(rng):
        tokens, config = _untrained(folder)
        model = CLIPModel(config)
        if steps:
            pool = [
                np.stack(
                    [p for _ in range(SLIDES) for p in islice(_patches(kind, rng, folder), POOL)]
                )
                for kind in KINDS
            ]
            _train(model, tokens, pool, rng, steps)
        bar = logging.is_progress_bar_enabled()
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        model.save_pretrained(folder, safe_serialization=True)
        if bar:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _untrained(folder: Path) -> tuple[Any, Any]:
    """A tokenizer of letters, written to the folder, and the shape of a small CLIP."""
    from transformers import CLIPConfig, CLIPTokenizer

    folder.mkdir(parents=True)
    letters = [
        "<|startoftext|>",
        "<|endoftext|>",
        *LETTERS,
        *(f"{letter}</w>" for letter in LETTERS),
    ]
    (folder / "vocab.json").write_text(json.dumps({letter: n for n, letter in enumerate(letters)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    tokens = CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt"))
    tokens.save_pretrained(folder)
    tower = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
             "num_attention_heads": 4}  # fmt: skip
    # Drawn small as usual, all captions begin alike and training stands still for long.
    text = {**tower, "initializer_factor": 8.0, "vocab_size": len(letters), "bos_token_id": 0,
            "eos_token_id": 1, "pad_token_id": 1}  # fmt: skip
    vision = {**tower, "initializer_factor": 4.0, "image_size": 64, "patch_size": 8}
    return tokens, CLIPConfig(text_config=text, vision_config=vision, projection_dim=32)


def _train(model: Any, tokens: Any, pool: list[Any], rng: Generator, steps: int) -> None:
    """Each patch of a batch has to find its own caption among those of all kinds.

    Parameters
    ----------
    model, tokens : CLIP and its tokenizer
    pool : patches (n, height, width, 3) of each of `KINDS`
    rng : of captions and patches
    steps : of gradient descent
    """
    import torch

    from mcp_servers.pathology.encoder_specs import CLIP
    from mcp_servers.pathology.models import resized

    mean, sd = (torch.tensor(part)[None, :, None, None] for part in CLIP)
    side = int(model.config.vision_config.image_size)
    held = [(resized(one, side, "bicubic").float() / 255 - mean) / sd for one in pool]
    kinds = torch.arange(len(pool)).repeat_interleave(BATCH)
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, steps)
    model.train()
    for _ in range(steps):
        pixels = torch.cat(
            [one[torch.from_numpy(rng.integers(0, len(one), BATCH))] for one in held]
        )
        turned = torch.rot90(pixels, int(rng.integers(4)), (2, 3))  # tissue has no upright
        pixels = turned.flip(3) if rng.integers(2) else turned
        caption = CAPTIONS[int(rng.integers(len(CAPTIONS)))]
        said = tokens([caption.format(kind) for kind in KINDS], padding=True, return_tensors="pt")
        logits = model(pixel_values=pixels, **said).logits_per_image
        loss = torch.nn.functional.cross_entropy(logits, kinds)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        falling.step()
    model.eval()

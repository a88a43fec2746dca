"""Models that users provide, by NOVA's names, for the encoders of the house.

Nothing is downloaded, and no Python code in a model's folder is run. Models published as
code (TITAN, PRISM, CONCH v1.5) must be given as a graph (ONNX or TorchScript).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from mcp_servers.context import ToolContext
from mcp_servers.slides.arrays import F32, I64, U8
from sage.core.errors import InputError
from sage_foundation.encoders import EncodeInput, EncodeResult, encode_tiles
from sage_nova.tools import declare as nova

ENCODERS: dict[str, Any] = {
    "handcrafted": "handcrafted", "uni_v1": "uni", "uni_v2": "uni2", "conch_v1": "conch",
    "conch_v15": "conch-v15", "virchow": "virchow", "virchow2": "virchow2", "gigapath": "gigapath",
    "phikon": "phikon", "phikon_v2": "phikon-v2", "hoptimus0": "h-optimus-0",
    "hoptimus1": "h-optimus-1", "plip": "plip",
}  # fmt: skip
"""The house's encoders by NOVA's names."""
ON_REQUEST = "Name of the encoder; {}, which needs no weights, is used only on request"
PatchEncoder = Annotated[
    Literal[
        "handcrafted", "uni_v1", "uni_v2", "conch_v1", "conch_v15", "virchow", "virchow2",
        "gigapath", "phikon", "phikon_v2", "hoptimus0", "hoptimus1", "plip",
    ],
    Field(description=ON_REQUEST.format("handcrafted")),
]  # fmt: skip
SlideEncoder = Annotated[
    Literal["mean", "titan", "prism", "madeleine", "gigapath"],
    Field(description=ON_REQUEST.format("mean")),
]
SOURCES = {
    "titan": "MahmoodLab/TITAN", "prism": "paige-ai/Prism", "madeleine": "MahmoodLab/madeleine",
    "gigapath": "prov-gigapath/prov-gigapath", "plip": "vinid/plip",
}  # fmt: skip


def encoder_memory(given: Any) -> int:
    """Estimate a call's memory in MiB from its patch encoder."""
    from sage_foundation.specs import encoder_spec

    fields = ("histology_roi_encoder_name", "patch_encoder_name", "model")
    name = next(name for field in fields if (name := getattr(given, field, None)))
    return max(4096, encoder_spec(ENCODERS[name]).memory_mb)


def encode_squares(
    slide: Any, encoder: str, given: nova.NetworkWeights, context: ToolContext, coords: Path
) -> EncodeResult:
    """Encode a slide's squares, which the HDF5 file `coords` lists, with `encode_tiles`."""
    asked = EncodeInput(
        slide=str(slide.path), mpp=override(slide), encoder=ENCODERS[encoder], coords=str(coords),
        weights=given.weights, device=given.device,
    )  # fmt: skip
    return encode_tiles(asked, context)


def override(slide: Any) -> float | None:
    """Return the pixel size that a call gave for a slide, to pass it on."""
    mpp: float | None = slide.mpp if slide.mpp_source == "override" else None
    return mpp


def load_model(
    given: Any, what: str, source: str, context: ToolContext, load: Callable[[Path], Any]
) -> Any:
    """Load the model that the arguments name, which is kept between a worker's calls.

    Weights never come from folders that tools or programs write to, nor through a link from
    there or from outside the roots, since a person must have chosen them. `what` and `source`
    appear in the message if there are none.
    """
    from sage_foundation.networks import check_weights

    if given.weights is None:
        raise InputError(
            f"{what} requires its weights; obtain them from {source} under their license and set "
            "weights; SAGE does not download them"
        )
    path = context.model(given.weights)
    return context.share_handle(("nova", what, check_weights(path, context)), lambda: load(path))


def load_clip(given: nova.NetworkWeights, context: ToolContext) -> tuple[Any, Any, int, str]:
    """Load PLIP, or any CLIP in the transformers layout, with its tokenizer, size, and device."""
    from mcp_servers.pathology.common import choose_device
    from sage_foundation import zeroshot

    device = choose_device(given.device, context.device)
    load = lambda path: (*zeroshot.load_clip(path, device), device)  # noqa: E731
    what, source = f"the text encoder plip on {device}", f"Hugging Face {SOURCES['plip']}"
    found: tuple[Any, Any, int, str] = load_model(given, what, source, context, load)
    return found


def load_captioner(given: Any, context: ToolContext) -> Callable[[U8], str]:
    """Load the captioner (BLIP, transformers layout) that the arguments name."""
    source = "the hub (a BLIP captioner of histology, model_type blip)"
    found: Callable[[U8], str] = load_model(given, "a captioner", source, context, _load_blip)
    return found


def _load_blip(path: Path) -> Callable[[U8], str]:
    import torch
    from transformers import BlipForConditionalGeneration

    from sage_foundation.models import resize_patches
    from sage_foundation.networks import from_folder
    from sage_foundation.specs import CLIP
    from sage_foundation.zeroshot import load_tokenizer

    model = from_folder(BlipForConditionalGeneration, path, "blip").eval()
    tokens, side = load_tokenizer(path), int(model.config.vision_config.image_size)
    mean, sd = (torch.tensor(part)[None, :, None, None] for part in CLIP)

    def describe(image: U8) -> str:
        pixels = (resize_patches(image[None], side, "bicubic").float().div_(255) - mean) / sd
        with torch.inference_mode():
            made = model.generate(pixel_values=pixels, max_new_tokens=80, do_sample=False)
        return str(tokens.decode(made[0], skip_special_tokens=True)).strip()

    return describe


def encode_slide(
    name: str, features: F32, coords: I64, side: int, given: Any, context: ToolContext
) -> F32:
    """Compute a slide's (dimension,) vector from its tiles' features (n, d).

    `mean` needs no weights. Any other encoder is a graph (ONNX or TorchScript) that takes
    features (1, n, d), upper left corners (1, n, 2) and the tiles' side (1,), both in level-0
    pixels, or the first of these.
    """
    from sage_foundation.networks import load_graph

    if name == "mean":
        if given.weights is not None:
            raise InputError("the mean of the tiles has no weights; omit them")
        return np.asarray(features.mean(axis=0), dtype=np.float32)
    source = (
        f"Hugging Face {SOURCES[name]}, as a graph (ONNX or TorchScript) of features (1, n, d), "
        "coordinates (1, n, 2), side (1,), since its Python code is not run,"
    )
    graph = load_model(
        given, f"the slide encoder {name}", source, context, lambda path: load_graph(path, "cpu")
    )
    out = graph(features[None], coords[None].astype(np.int64), np.array([side], np.int64))
    if out.size == 0 or out.size != out.shape[-1]:
        raise InputError(
            f"{given.weights}: the output has shape {out.shape} instead of (1, dimension)"
        )
    return np.asarray(out.reshape(-1), dtype=np.float32)

"""Loading of patch encoders by name, based on their specifications.

Only the handcrafted encoder needs no weights. The others load from a local folder that
the user obtained under the model's license (see `networks`); nothing is downloaded here.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcp_servers.pathology.common import choose_device
from mcp_servers.slides.arrays import F32, U8
from sage.core.errors import InputError
from sage_foundation.specs import EncoderSpec, Precision, Resize

if TYPE_CHECKING:
    from mcp_servers.context import ToolContext


@dataclass(frozen=True, slots=True)
class Encoder:
    """A loaded encoder: `stack` prepares batches in the reading thread, `encode` runs the model."""

    stack: Callable[[list[U8]], Any]
    encode: Callable[[Any], F32]
    precision: Precision = "float32"
    mb_per_patch: float = 4.0


def load_encoder(spec: EncoderSpec, weights: Path | None, device: str, mpp: float) -> Encoder:
    """Load the encoder described by `spec`, which maps patches (H, W, 3) to features (n, d).

    Parameters
    ----------
    mpp : micrometers per pixel of the patches

    Raises
    ------
    InputError
        If the weights or the library that reads them are missing, or the weights do not fit.
    """
    if spec.loader == "handcrafted":
        return _handcrafted(mpp)
    if weights is None:
        raise InputError(
            f"encoder {spec.name} needs pretrained weights; download them from {spec.source} under "
            f"their license ({spec.license}) and pass the folder (or the model's graph, ONNX or "
            "TorchScript) as weights=...; the "
            "`handcrafted` encoder needs none"
        )
    from sage_foundation.networks import load_network

    return network_encoder(load_network(spec, weights), spec, device)


def encoder_for(
    spec: EncoderSpec, weights: str | None, device: str, mpp: float, context: ToolContext
) -> tuple[Encoder, str]:
    """Return the encoder for a call, kept loaded between a worker's calls, and its device.

    Raises the errors of `load_encoder` and `choose_device`, and refuses weights outside the
    roots and those that a tool or program wrote.

    Parameters
    ----------
    mpp : micrometers per pixel of the patches
    """
    folder = context.model(weights) if weights is not None else None
    if spec.loader == "handcrafted":  # alone depends on the pixel size; made in no time
        if weights is not None:
            raise InputError("encoder handcrafted has no weights; omit them")
        return load_encoder(spec, None, "cpu", mpp), "cpu"
    where = choose_device(device, context.device)
    stamp = None
    if folder is not None:
        from sage_foundation.networks import check_weights

        stamp = check_weights(folder, context)
    key = ("encoder", spec.name, str(folder), stamp, where)
    return context.share_handle(key, lambda: load_encoder(spec, folder, where, mpp)), where


def _handcrafted(mpp: float) -> Encoder:
    import numpy as np

    from sage_foundation.handcrafted import encode_patch

    def run(patches: list[U8]) -> F32:
        # the inner loops release the interpreter's lock
        with ThreadPoolExecutor(2) as pool:
            return np.stack(list(pool.map(lambda patch: encode_patch(patch, mpp), patches)))

    return Encoder(list, run)


def network_encoder(network: Callable[[Any], Any], spec: EncoderSpec, device: str) -> Encoder:
    """Wrap a `torch.nn.Module` that maps normalized patches to (n, d) as an encoder."""
    import numpy as np
    import torch

    module: Any = network
    module.eval().to(device)
    mean = torch.tensor(spec.normalize[0], device=device)[None, :, None, None]
    sd = torch.tensor(spec.normalize[1], device=device)[None, :, None, None]
    cuda = device.startswith("cuda")
    kind = spec.precision if cuda else "float32"

    def stack(patches: list[U8]) -> Any:
        pixels = resize_patches(np.stack(patches), spec.patch_px, spec.resize)
        return pixels.pin_memory() if cuda else pixels  # pinned: the copy runs beside the compute

    def run(pixels: Any) -> F32:
        batch = pixels.to(device, non_blocking=True).float().div_(255)
        batch = (batch - mean) / sd
        half = torch.autocast("cuda", dtype=getattr(torch, kind), enabled=kind != "float32")
        with torch.inference_mode(), half:
            out = module(batch)
        features: F32 = out.float().cpu().numpy()
        return features

    def encode(pixels: Any) -> F32:
        try:
            return run(pixels)
        except torch.cuda.OutOfMemoryError as error:
            if len(pixels) == 1:
                raise InputError(
                    f"{spec.name} does not fit into the memory of {device}; use device=cpu"
                ) from error
        if cuda:
            torch.cuda.empty_cache()
        middle = len(pixels) // 2
        return np.concatenate([encode(pixels[:middle]), encode(pixels[middle:])])

    # tokens x channels x 4 bytes; about 24 such arrays live at once in a block (SwiGLU, attention)
    mb = (spec.patch_px / 14) ** 2 * min(spec.dimension, 1536) * 4 * 24 / 2**20
    return Encoder(stack, encode, kind, mb)


def resize_patches(patches: U8, side: int, how: Resize) -> Any:
    """Resize patches (n, H, W, 3) to uint8 (n, 3, side, side) on the CPU, as Pillow does."""
    import torch

    pixels = torch.tensor(patches).permute(0, 3, 1, 2)  # a copy: an image's pixels can be read-only
    if pixels.shape[-2:] == (side, side):
        return pixels
    return torch.nn.functional.interpolate(pixels, (side, side), mode=how, antialias=True)

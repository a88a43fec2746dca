"""A nucleus segmentation network in TorchScript, tile by tile (the interface of InstanSeg).

The module maps (1, 3, H, W) float to (1, k, H, W): a label image (whole numbers, 0 outside; the
first channel holds nuclei where there are more), or a probability of nucleus between 0 and 1.
An attribute `pixel_size` gives the µm per pixel it was trained at. A TorchScript file is code:
loading one that someone else made is running what they wrote.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mcp_servers.slides.arrays import F32, U8, AnyArray, BoolArray
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.pathology.compute.nuclei import Nuclei

Scaling = Literal["percentile", "unit"]
DEFAULT_MPP = 0.5
TILE, HALO_UM = 768, 20.0
CUT = 0.5


class LearnedNuclei:
    """A loaded module and how its input is scaled.

    `low` and `high` (3,) are the gray values that become 0 and 1.
    """

    def __init__(self, path: Path, device: str, mpp: float | None = None) -> None:
        """Load on the CPU, then move; raises `InputError` when the file is not TorchScript."""
        import torch

        try:
            load: Any = torch.jit.load
            module = load(str(path), map_location="cpu")
        except (RuntimeError, ValueError, OSError) as error:
            raise InputError(
                f"{path}: not a TorchScript module ({str(error).split('. ')[0][:120]}); export "
                "one with torch.jit.script or torch.jit.trace and save"
            ) from error
        stated = getattr(module, "pixel_size", None)
        known = isinstance(stated, int | float) and 0.1 <= float(stated) <= 2.0
        self.path, self.device = path, device
        self.mpp = mpp or (float(stated) if known and stated is not None else DEFAULT_MPP)
        self.stated = known
        self.module = module.eval().to(device)
        self.low: F32 = np.zeros(3, dtype=np.float32)
        self.high: F32 = np.full(3, 255.0, dtype=np.float32)

    def scale_to(self, images: list[U8], scaling: Scaling) -> None:
        """Set the range of the input: 0 to 255, or the percentiles 0.1 and 99.9 of sampled tissue.

        One range serves the whole slide, so that tiles are treated alike.
        """
        if scaling == "percentile" and images:
            pixels = np.concatenate([image[::2, ::2].reshape(-1, 3) for image in images])
            low, high = np.percentile(pixels, [0.1, 99.9], axis=0)
            self.low = np.asarray(low, dtype=np.float32)
            self.high = np.asarray(np.maximum(high, low + 1), dtype=np.float32)

    def raw(self, image: U8) -> F32:
        """What the module answers for an image (H, W, 3), its first channel (H, W)."""
        import torch

        height, width = image.shape[:2]
        spare = ((0, -height % 32), (0, -width % 32), (0, 0))  # networks halve five times
        padded = np.pad(image, spare, mode="reflect" if min(height, width) > 32 else "edge")
        values = (padded.astype(np.float32) - self.low) / (self.high - self.low)
        tensor = torch.from_numpy(np.ascontiguousarray(values.transpose(2, 0, 1)))[None]
        try:
            with torch.inference_mode():
                out = self.module(tensor.to(self.device))
        except RuntimeError as error:
            # TorchScript's message holds a listing of the module; the last line says what failed
            last = str(error).strip().splitlines()[-1][:300]
            raise InputError(
                f"{self.path}: fails on an image (1, 3, H, W) of float: {last}"
            ) from error
        if not isinstance(out, torch.Tensor) or out.dim() not in (3, 4):
            kind = tuple(out.shape) if isinstance(out, torch.Tensor) else type(out).__name__
            raise InputError(f"{self.path}: gives {kind}, not one image (1, k, H, W)")
        plane: F32 = out.reshape(-1, *out.shape[-2:])[0].float().cpu().numpy()
        if plane.shape != padded.shape[:2]:
            raise InputError(
                f"{self.path}: gives an image of {plane.shape[1]} x {plane.shape[0]} for one of "
                f"{padded.shape[1]} x {padded.shape[0]}; the sizes must agree"
            )
        return np.ascontiguousarray(plane[:height, :width])

    def segment(self, image: U8, mpp: float, within: BoolArray | None = None) -> Nuclei:
        """Nuclei of an image at the module's pixel size, measured as by the classical method."""
        import cv2

        from mcp_servers.pathology.compute.nuclei import (
            green_density,
            measured,
            nuclear_density,
            part_touching,
        )

        plane = self.raw(image)
        labels = as_labels(plane, self.path)
        if labels is None:
            labels = part_touching((plane > CUT).astype(np.uint8), 1.0 / mpp)
        density = nuclear_density(image)
        smooth = cv2.GaussianBlur(density, (0, 0), max(0.4, 0.5 / mpp))
        return measured(labels, density, smooth, mpp, within, green_density(image))


def as_labels(plane: F32, path: Path) -> AnyArray | None:
    """Labels 1 to n when the values are whole numbers above 1, None when they are probabilities.

    Raises `InputError` when they are neither.
    """
    if not np.isfinite(plane).all() or float(plane.min()) < -1e-3:
        raise InputError(f"{path}: gives negative or infinite values: logits? Add a sigmoid")
    if float(plane.max()) <= 1.0 + 1e-3:
        return None
    if not np.array_equal(plane, np.round(plane)):
        raise InputError(f"{path}: gives values above 1 that are no whole numbers: not a label map")
    found, labels = np.unique(plane.astype(np.int64), return_inverse=True)
    # label 0 is the background, also where it does not occur
    first = 0 if found[0] == 0 else 1
    return (labels.reshape(plane.shape) + first).astype(np.int32)

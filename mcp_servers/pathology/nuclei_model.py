"""A nucleus segmentation network in TorchScript or ONNX, tile by tile (InstanSeg's interface).

The module maps (1, 3, H, W) float to (1, k, H, W): a label image (whole numbers, 0 outside; the
first channel holds nuclei where there are more), or a probability of nucleus between 0 and 1.
An attribute `pixel_size` (of ONNX: the metadata's) gives the µm per pixel it was trained at. A
TorchScript file is code: loading one that someone else made is running what they wrote. An ONNX
file is a graph of known operators.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
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


Answer = Callable[[F32], Any]
"""From (1, 3, H, W) to what a module gives, as an array where it gives one."""


def _torchscript(path: Path, device: str) -> tuple[Answer, float | None]:
    """The module, loaded on the CPU and moved, and its pixel size."""
    import torch

    try:
        load: Any = torch.jit.load
        module = load(str(path), map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(
            f"{path}: not a TorchScript module ({str(error).split('. ')[0][:120]}); export "
            "one with torch.jit.script or torch.jit.trace and save, or give an .onnx file"
        ) from error
    module = module.eval().to(device)
    stated = getattr(module, "pixel_size", None)

    def answer(batch: F32) -> Any:
        with torch.inference_mode():
            out = module(torch.from_numpy(batch).to(device))
        return out.float().cpu().numpy() if isinstance(out, torch.Tensor) else out

    return answer, float(stated) if isinstance(stated, int | float) else None


def _onnx(path: Path, device: str) -> tuple[Answer, float | None]:
    """The graph in a session on the CPU, or on the card where the runtime can use one."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(
            f"{path}: an ONNX file needs the package onnxruntime: "
            'pip install "sage-pathology[onnx]"'
        ) from error
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu" and "CUDAExecutionProvider" in runtime.get_available_providers():
        number = int(device.partition(":")[2] or 0)
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": number}))
    try:
        session = runtime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # the runtime's own classes, which have no common base
        told = str(error).strip().splitlines()
        raise InputError(f"{path}: not an ONNX model ({told[-1][:160] if told else ''})") from error
    name = session.get_inputs()[0].name
    told = session.get_modelmeta().custom_metadata_map.get("pixel_size", "")

    def answer(batch: F32) -> Any:
        try:
            return session.run(None, {name: batch})[0]
        except Exception as error:
            raise RuntimeError(str(error)) from error

    try:
        return answer, float(told)
    except ValueError:
        return answer, None


class LearnedNuclei:
    """A loaded module and how its input is scaled.

    `low` and `high` (3,) are the gray values that become 0 and 1.
    """

    def __init__(self, path: Path, device: str, mpp: float | None = None) -> None:
        """Raises `InputError` when the file is neither TorchScript nor ONNX."""
        load = _onnx if path.suffix == ".onnx" else _torchscript
        self.path = path
        self.answer, stated = load(path, device)
        self.stated = stated is not None and 0.1 <= stated <= 2.0
        self.mpp = mpp or (stated if self.stated and stated is not None else DEFAULT_MPP)
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
        height, width = image.shape[:2]
        spare = ((0, -height % 32), (0, -width % 32), (0, 0))  # networks halve five times
        padded = np.pad(image, spare, mode="reflect" if min(height, width) > 32 else "edge")
        values = (padded.astype(np.float32) - self.low) / (self.high - self.low)
        try:
            out = self.answer(np.ascontiguousarray(values.transpose(2, 0, 1))[None])
        except RuntimeError as error:
            # TorchScript's message holds a listing of the module; the last line says what failed
            last = str(error).strip().splitlines()[-1][:300]
            raise InputError(
                f"{self.path}: fails on an image (1, 3, H, W) of float: {last}"
            ) from error
        if not isinstance(out, np.ndarray) or out.ndim not in (3, 4):
            kind = out.shape if isinstance(out, np.ndarray) else type(out).__name__
            raise InputError(f"{self.path}: gives {kind}, not one image (1, k, H, W)")
        plane: F32 = out.reshape(-1, *out.shape[-2:])[0].astype(np.float32)
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

"""Nucleus segmentation tile by tile with a TorchScript or ONNX network, typed if available.

The module maps (1, 3, H, W) float to (1, k, H, W): a label image (whole numbers, 0
outside; nuclei are in the first channel), or a nucleus probability between 0 and 1
(InstanSeg's interface). Alternatively, it returns the named maps of HoVer-Net and related
models (`typed_maps`), the third of which contains types. Attributes (for ONNX, metadata)
are `pixel_size`, the µm per pixel that it was trained at; `types`, the names of its
types; and `window`, the side in pixels if it accepts only a fixed size (for ONNX, the
input size). A TorchScript file is code: loading another person's file runs their code. An
ONNX file is a graph of known operators.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mcp_servers.pathology.nuclei import PANNUKE, NetworkReader, NucleiInput, Scaling
from mcp_servers.slides.arrays import F32, U8, AnyArray, BoolArray
from sage.core.errors import InputError
from sage_foundation.hub import find_cached, fingerprint
from sage_foundation.nuclei_maps import (
    TYPED,
    plain_names,
    shares,
    split_nuclei,
    typed_maps,
)

if TYPE_CHECKING:
    from mcp_servers.context import ToolContext
    from mcp_servers.pathology.compute.nuclei import Nuclei
    from mcp_servers.slides.slide import Slide

DEFAULT_MPP = 0.5
WINDOWS = (32, 4096)
"""Allowed window sides in pixels: smaller needs too many calls, larger too much memory."""
CUT = 0.5
UNLIKE, TOO_UNLIKE = 1.2, 2.0
"""Ratios of scan to network pixel size above which nuclei are small, or far too small."""

Answer = Callable[..., Any]
"""Function from (1, 3, H, W) input to a module's output, as an array or several by name.

Further arrays are passed on as far as the module accepts them.
"""


@dataclass(frozen=True)
class Stated:
    """Metadata stated in a module's file; None or () for each field that is absent."""

    pixel_size: float | None = None
    types: tuple[str, ...] = ()
    window: int | None = None


def open_graph(path: Path, device: str) -> tuple[Answer, Stated]:
    """Open an ONNX or TorchScript file; raises `InputError` if it is neither."""
    return (_onnx if path.suffix == ".onnx" else _torchscript)(path, device)


def _torchscript(path: Path, device: str) -> tuple[Answer, Stated]:
    """Load the module on the CPU, move it to the device, and return it with its metadata."""
    import torch

    try:
        load: Any = torch.jit.load
        module = load(str(path), map_location="cpu")
    except (RuntimeError, ValueError, OSError) as error:
        raise InputError(
            f"{path}: not a TorchScript module ({str(error).split('. ')[0][:120]}); export it "
            "with torch.jit.script or torch.jit.trace and save it, or provide an .onnx file"
        ) from error
    module = module.eval().to(device)
    size, types, window = (getattr(module, key, None) for key in ("pixel_size", "types", "window"))

    def plain(out: Any) -> Any:
        return out.float().cpu().numpy() if isinstance(out, torch.Tensor) else out

    def answer(*arrays: AnyArray) -> Any:
        accepted = len(arrays) if len(arrays) == 1 else len(list(module.graph.inputs())) - 1
        with torch.inference_mode():
            out = module(*(torch.from_numpy(array).to(device) for array in arrays[:accepted]))
        return {k: plain(v) for k, v in out.items()} if isinstance(out, dict) else plain(out)

    return answer, Stated(
        pixel_size=float(size) if isinstance(size, int | float) else None,
        types=tuple(map(str, types)) if isinstance(types, list | tuple) else (),
        window=window if isinstance(window, int) else None,
    )


def _onnx(path: Path, device: str) -> tuple[Answer, Stated]:
    """Load the graph into a session on the CPU, or on a GPU if the runtime supports it."""
    try:
        runtime: Any = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise InputError(
            f"{path}: ONNX files require the onnxruntime package: pip install "
            '"sage-pathology[onnx]"'
        ) from error
    providers: list[Any] = ["CPUExecutionProvider"]
    if device != "cpu" and "CUDAExecutionProvider" in runtime.get_available_providers():
        number = int(device.partition(":")[2] or 0)
        providers.insert(0, ("CUDAExecutionProvider", {"device_id": number}))
    try:
        session = runtime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # the runtime's own exceptions, which have no common base
        lines = str(error).strip().splitlines()
        raise InputError(
            f"{path}: not an ONNX model ({lines[-1][:160] if lines else ''})"
        ) from error
    inputs = session.get_inputs()
    metadata = session.get_modelmeta().custom_metadata_map
    names = [output.name for output in session.get_outputs()]

    def answer(*arrays: AnyArray) -> Any:
        named = {item.name: array for item, array in zip(inputs, arrays, strict=False)}
        try:
            out = session.run(None, named)
        except Exception as error:
            raise RuntimeError(" ".join(str(error).split())) from error  # it says all in the middle
        return dict(zip(names, out, strict=True)) if len(out) > 1 else out[0]

    shape = inputs[0].shape
    side = shape[-1] if shape[-2:-1] == shape[-1:] else None
    return answer, Stated(
        pixel_size=_number(metadata.get("pixel_size", "")),
        types=tuple(name.strip() for name in metadata.get("types", "").split(",") if name.strip()),
        window=side if isinstance(side, int) else _whole(metadata.get("window", "")),
    )


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


class LearnedNuclei:
    """A loaded module and the scaling of its input.

    `low` and `high` (3,) are the gray values that become 0 and 1. `types` are the names of
    the types that it predicts, empty if it predicts none.
    """

    def __init__(
        self, path: Path, device: str, mpp: float | None = None, types: Sequence[str] = ()
    ) -> None:
        """Open the file; raises `InputError` if it is neither TorchScript nor ONNX."""
        self.path = path
        self.answer, stated = open_graph(path, device)
        size = stated.pixel_size
        self.stated = size is not None and 0.1 <= size <= 2.0
        self.mpp = mpp or (size if self.stated and size is not None else DEFAULT_MPP)
        self.window = stated.window
        self.kept: int | None = None
        if self.window is not None and not WINDOWS[0] <= self.window <= WINDOWS[1]:
            raise InputError(
                f"{path}: the window must be {WINDOWS[0]} to {WINDOWS[1]} px, got {self.window}"
            )
        try:
            self.types = plain_names(types or stated.types)
        except ValueError as error:
            raise InputError(f"{path}: {error}") from error
        self.low: F32 = np.zeros(3, dtype=np.float32)
        self.high: F32 = np.full(3, 255.0, dtype=np.float32)

    def scale_to(self, images: list[U8], scaling: Scaling) -> None:
        """Set the range by which input values are scaled, once for the whole slide.

        The range is 0 to 255, the 0.1 and 99.9 percentiles of sampled tissue, or none (raw gray
        values, as HoVer-Net expects). A single range keeps the slide's tiles comparable.
        """
        if scaling == "none":
            self.high = np.ones(3, dtype=np.float32)
        elif scaling == "percentile" and images:
            pixels = np.concatenate([image[::2, ::2].reshape(-1, 3) for image in images])
            low, high = np.percentile(pixels, [0.1, 99.9], axis=0)
            self.low = np.asarray(low, dtype=np.float32)
            self.high = np.asarray(np.maximum(high, low + 1), dtype=np.float32)

    def raw(self, image: U8) -> F32:
        """Compute the module's output (k, H, W) for an image (H, W, 3).

        The output is a single channel of labels or probabilities, or the channels of `typed_maps`.
        """
        values = (image.astype(np.float32) - self.low) / (self.high - self.low)
        if self.window is not None:
            return self._by_windows(values, self.window)
        height, width = image.shape[:2]
        padded = pad_mirrored(values, (0, -height % 32), (0, -width % 32))
        out = self._run_module(padded)
        if out.shape[1:] != padded.shape[:2]:
            raise InputError(
                f"{self.path}: the output is {out.shape[2]} x {out.shape[1]} px for an input of "
                f"{padded.shape[1]} x {padded.shape[0]} px; the sizes must match, or the "
                "module must define its `window`"
            )
        return np.ascontiguousarray(out[:, :height, :width])

    def _by_windows(self, values: F32, window: int) -> F32:
        """Run the module window by window, keeping the middle of each, the size of its output."""
        height, width = values.shape[:2]
        kept = self._find_side(window)
        margin = (window - kept) // 2
        rest = window - kept - margin
        padded = pad_mirrored(
            values, (margin, -height % kept + rest), (margin, -width % kept + rest)
        )
        rows = []
        for top in range(0, height, kept):
            row = [
                self._run_module(padded[top : top + window, left : left + window])
                for left in range(0, width, kept)
            ]
            if odd := [array.shape[1:] for array in row if array.shape[1:] != (kept, kept)]:
                raise InputError(
                    f"{self.path}: the output is {odd[0][1]} x {odd[0][0]} px for a window of "
                    f"{window} px; outputs must be square and of equal size"
                )
            rows.append(np.concatenate(row, axis=2))
        return np.ascontiguousarray(np.concatenate(rows, axis=1)[:, :height, :width])

    def _find_side(self, window: int) -> int:
        """Determine, once, the side of the module's output for a window."""
        if self.kept is None:
            self.kept = self._run_module(np.zeros((window, window, 3), dtype=np.float32)).shape[-1]
            if not 0 < self.kept <= window:
                raise InputError(
                    f"{self.path}: the output is {self.kept} px for a window of {window} px"
                )
        return self.kept

    def _run_module(self, values: F32) -> F32:
        """Run the module on scaled pixels (H, W, 3) and return (k, h, w)."""
        try:
            out = self.answer(np.ascontiguousarray(values.transpose(2, 0, 1))[None])
        except RuntimeError as error:
            # TorchScript's message holds a listing of the module; the last line says what failed
            last = str(error).strip().splitlines()[-1][:300]
            raise InputError(f"{self.path}: fails on a float image (1, 3, H, W): {last}") from error
        if isinstance(out, dict):
            return self._maps(out)
        if not isinstance(out, np.ndarray) or out.ndim not in (3, 4):
            kind = out.shape if isinstance(out, np.ndarray) else type(out).__name__
            raise InputError(f"{self.path}: returns {kind} instead of one image (1, k, H, W)")
        return np.asarray(out.reshape(-1, *out.shape[-2:])[:1], dtype=np.float32)

    def _maps(self, out: dict[str, Any]) -> F32:
        try:
            maps = typed_maps(out)
        except ValueError as error:
            raise InputError(f"{self.path}: {error}") from error
        if len(maps) - TYPED != len(self.types):
            raise InputError(
                f"{self.path}: predicts {len(maps) - TYPED} types but has {len(self.types)} type "
                "names; give the names in weights_types, in channel order and without "
                f"the background, such as {', '.join(PANNUKE)}"
            )
        return maps

    def segment(self, image: U8, mpp: float, within: BoolArray | None = None) -> Nuclei:
        """Segment nuclei at the module's pixel size, measured as by the classical method."""
        import cv2

        from mcp_servers.pathology.compute.nuclei import (
            green_density,
            measure_shapes,
            nuclear_density,
            part_touching,
        )

        maps = self.raw(image)
        if self.types and len(maps) == 1:
            raise InputError(
                f"{self.path}: type names were given, but the module predicts no types"
            )
        labels = split_nuclei(maps, mpp) if self.types else as_labels(maps[0], self.path)
        if labels is None:
            labels = part_touching((maps[0] > CUT).astype(np.uint8), 1.0 / mpp)
        density = nuclear_density(image)
        smooth = cv2.GaussianBlur(density, (0, 0), max(0.4, 0.5 / mpp))
        found = measure_shapes(labels, density, smooth, mpp, within, green_density(image))
        return replace(found, kinds=shares(found.labels, maps[TYPED:])) if self.types else found


def open_network(
    path: Path,
    device: str,
    slide: Slide,
    mask: BoolArray,
    scale: float,
    given: NucleiInput,
    context: ToolContext,
) -> tuple[LearnedNuclei, list[str]]:
    """Open a network file with its input scaled to a slide, and return it with notes.

    Parameters
    ----------
    mask : (height, width) of the tissue
    scale : level-0 pixels per mask pixel

    Raises
    ------
    InputError
        If the file is not such a module, or if the scan's pixels are more than `TOO_UNLIKE`
        times as large as the module expects.
    """
    from mcp_servers.pathology.surveying import sample_tissue

    stat = path.stat()
    key = ("nuclei", str(path), stat.st_mtime_ns, stat.st_size, device)
    if given.weights is not None:  # a TorchScript file is code
        context.model(given.weights)
    own = (given.weights_mpp, tuple(given.weights_types or ()))
    # a copy, since each slide has its own scale
    network = copy(context.share_handle((*key, *own), lambda: LearnedNuclei(path, device, *own)))
    base = slide.need_mpp()
    if base > TOO_UNLIKE * network.mpp:
        raise InputError(
            f"{network.path.name} expects {network.mpp:g} µm per pixel, but {slide.path} has "
            f"{base:g}: nuclei would appear {base / network.mpp:.1f} times too small. Use a "
            "network for coarser scans, a finer scan, or the bundled network (omit weights)"
        )
    notes = []
    if not network.stated and given.weights_mpp is None:
        notes.append(
            f"{network.path.name} does not state its pixel size; {network.mpp:g} µm is assumed"
        )
    if network.types and given.scaling == "percentile":
        notes.append(
            f"the input of {network.path.name} was scaled as InstanSeg's networks require "
            "(scaling=percentile); for HoVer-Net, which requires gray values, use scaling=none"
        )
    if base > UNLIKE * network.mpp:
        notes.append(
            f"{network.path.name} expects {network.mpp:g} µm per pixel, but the scan has "
            f"{base:g}: its nuclei look smaller than those in training"
        )
    mpp = max(network.mpp, base)
    network.scale_to(sample_tissue(slide, mask, scale, mpp), given.scaling)
    return network, notes


def pad_mirrored(values: F32, rows: tuple[int, int], columns: tuple[int, int]) -> F32:
    """Pad pixels (H, W, 3) by mirroring, repeatedly if the border is wider than the image."""
    return np.pad(values, (rows, columns, (0, 0)), mode="reflect")


def as_labels(plane: F32, path: Path) -> AnyArray | None:
    """Return labels 1 to n if values are whole numbers above 1, or None for probabilities.

    Raises `InputError` if they are neither.
    """
    if not np.isfinite(plane).all() or float(plane.min()) < -1e-3:
        raise InputError(
            f"{path}: returns negative or infinite values, possibly logits; add a sigmoid"
        )
    if float(plane.max()) <= 1.0 + 1e-3:
        return None
    if not np.array_equal(plane, np.round(plane)):
        raise InputError(f"{path}: returns non-integer values above 1, so it is not a label map")
    found, labels = np.unique(plane.astype(np.int64), return_inverse=True)
    # label 0 is the background, even if it does not occur
    first = 0 if found[0] == 0 else 1
    return (labels.reshape(plane.shape) + first).astype(np.int32)


READER = NetworkReader(find_cached, fingerprint, open_network)
"""Reader for nucleus networks, registered under `sage.nuclei`."""

"""The nuclei network: its file (safetensors with an embedded card) and its use on images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_servers.lazy import cv2
from mcp_servers.pathology.compute.nuclei import (
    Nuclei,
    green_density,
    measure_shapes,
    nuclear_density,
)
from mcp_servers.slides.arrays import F32, I32, U8, AnyArray, BoolArray
from sage.core.data import data_folder
from sage.core.errors import InputError, explain_validation

FORMAT = "sage-nuclei-1"
WORKING_MPP = 0.5
SHIPPED = "nuclei.safetensors"
MAPS_PLACE = 2
"""Index of the first map that contains a position rather than a probability."""
STRETCH = 1.1
"""Maximum factor by which an image may be coarser than expected without being enlarged."""


class NucleiScores(BaseModel):
    """Mean scores over tiles, with those of Otsu + watershed and of the classical method."""

    model_config = ConfigDict(extra="allow", strict=True)

    data: str
    tiles: int = Field(ge=1)
    f1: float = Field(ge=0, le=1)
    dice: float = Field(ge=0, le=1)
    aji: float = Field(ge=0, le=1)
    pq: float = Field(ge=0, le=1)
    otsu_watershed: dict[str, float] = Field(default_factory=dict)
    classical: dict[str, float] = Field(default_factory=dict)


class NucleiCard(BaseModel):
    """Required fields of a nuclei network's card; other fields are kept."""

    model_config = ConfigDict(extra="allow", strict=True)

    format: Literal["sage-nuclei-1"]
    name: str = Field(min_length=1, max_length=60)
    widths: list[int] = Field(min_length=2, max_length=6)
    mpp: float = Field(ge=0.1, le=2)
    seed: int
    training_data: str
    data_sha256: str
    held_out: NucleiScores
    strength: list[float] | None = Field(default=None, min_length=3, max_length=3)
    """1st percentile, median and 99th percentile of `nuclear_strength` over training tiles."""


def save(path: Path, weights: Mapping[str, Any], card: dict[str, Any]) -> None:
    """Write half-precision weights as safetensors, with the card in the metadata."""
    import torch
    from safetensors.torch import save_file

    plain = {
        name: value.to(torch.float16).contiguous() if value.is_floating_point() else value
        for name, value in weights.items()
        if not name.endswith("num_batches_tracked")
    }
    save_file(plain, path, metadata={"card": json.dumps(card)})


def read_card(path: Path) -> NucleiCard:
    """Read the card of a file written by `save`; raises `InputError` for other files."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            card = json.loads((file.metadata() or {}).get("card", "{}"))
        if not isinstance(card, dict) or card.get("format") != FORMAT:
            raise InputError(f"{path}: not a SAGE nuclei network")
        return NucleiCard.model_validate(card)
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        reason = (
            explain_validation(error, limit=5) if isinstance(error, ValidationError) else str(error)
        )
        raise InputError(f"{path}: not a SAGE nuclei network: {reason}") from error


def shipped_network() -> Path | None:
    """Load the bundled network, or return None if it or PyTorch is not installed."""
    if find_spec("torch") is None or find_spec("safetensors") is None:
        return None
    path = data_folder("models") / SHIPPED
    return path if path.is_file() else None


class NucleiNetwork:
    """A loaded network; `segment` has the same form as `compute.nuclei.segment`."""

    stated = True
    types: tuple[str, ...] = ()
    dye = 1.0
    """Factor applied to optical densities to bring a dark slide to the training strength."""

    def __init__(self, path: Path, device: str = "cpu") -> None:
        """Load onto a device; raise `InputError` if the file is damaged or not such a network."""
        import torch
        from safetensors.torch import load_file

        from mcp_servers.pathology.nuclei_net.network import NucleiNet

        self.card = read_card(path)
        self.path, self.device, self.mpp = path, device, self.card.mpp
        try:
            net = NucleiNet(tuple(self.card.widths))
            tensors = {name: value.float() for name, value in load_file(path).items()}
            if not all(torch.isfinite(value).all() for value in tensors.values()):
                raise InputError(f"{path}: damaged weights: values are not finite")
            missing, unknown = net.load_state_dict(tensors, strict=False)
        except RuntimeError as error:
            raise InputError(f"{path}: the weights do not match the card: {error}") from error
        lacking = [name for name in missing if not name.endswith("num_batches_tracked")]
        if lacking or unknown:
            raise InputError(f"{path}: the weights do not match the card: {(lacking + unknown)[0]}")
        self.net = fuse_normalization(net.eval()).to(device, memory_format=torch.channels_last)

    def adapt(self, strength: float | None) -> NucleiNetwork:
        """Return this network adapted to a slide with the given `nuclear_strength`.

        Dark slides are scaled down to the training median. Pale slides are left unchanged,
        because amplification would turn noise in the stroma into nuclei.
        """
        adapted = copy(self)
        if strength and self.card.strength is not None:
            adapted.dye = min(1.0, self.card.strength[1] / strength)
        return adapted

    def maps(self, image: U8) -> F32:
        """Compute (4, H, W) maps: nucleus probability, depth, horizontal and vertical position."""
        import torch

        from mcp_servers.pathology.nuclei_net.network import MULTIPLE, densities

        height, width = image.shape[:2]
        spare = ((0, -height % MULTIPLE), (0, -width % MULTIPLE), (0, 0))
        padded = np.pad(image, spare, mode="reflect" if min(height, width) > MULTIPLE else "edge")
        given = (
            torch.from_numpy(np.ascontiguousarray(padded)).to(self.device).permute(2, 0, 1)[None]
        )
        with torch.inference_mode():
            out = self.net(
                (densities(given) * self.dye).contiguous(memory_format=torch.channels_last)
            )[0]
            out[:MAPS_PLACE] = torch.sigmoid(out[:MAPS_PLACE])
            plain: F32 = out.float().cpu().numpy()
        return np.ascontiguousarray(plain[:, :height, :width])

    def labels(self, image: U8, mpp: float) -> I32:
        """Label the nuclei in an image whose pixels are `mpp` µm wide."""
        if mpp <= STRETCH * self.mpp:
            return instances(self.maps(image))
        height, width = image.shape[:2]
        factor = mpp / self.mpp
        size = (round(width * factor), round(height * factor))
        larger = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_CUBIC), dtype=np.uint8)
        found = instances(self.maps(larger)).astype(np.float32)
        small = cv2.resize(found, (width, height), interpolation=cv2.INTER_NEAREST)
        return np.asarray(small, dtype=np.int32)

    def segment(self, image: U8, mpp: float, within: BoolArray | None = None) -> Nuclei:
        """Segment the nuclei in an image and measure them as in the classical method."""
        density = nuclear_density(image)
        smooth = cv2.GaussianBlur(density, (0, 0), max(0.4, 0.5 / mpp))
        second = green_density(image)
        return measure_shapes(self.labels(image, mpp), density, smooth, mpp, within, second)


def fuse_normalization(net: Any) -> Any:
    """Fold each normalization in the network into the preceding convolution."""
    from torch import nn
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    for module in net.modules():
        if isinstance(module, nn.Sequential) and len(module) == 3:
            first, second = module[0], module[1]
            if isinstance(first, nn.Conv2d) and isinstance(second, nn.BatchNorm2d):
                module[0], module[1] = fuse_conv_bn_eval(first, second), nn.Identity()
    return net


CUT = 0.4
"""Probability at or above which a pixel belongs to a nucleus."""
LEAST_PX, HOLE_PX = 20, 80
"""Sizes below which pieces are dropped, and holes in a nucleus are filled."""
SEED_DEPTH = 0.2
"""Depth below which a local maximum does not start a separate nucleus."""
SEED_SMOOTHING_PX, SEED_REACH_PX = 0.8, 2
SADDLE = 0.8
"""Minimum depth at the border of two basins, as a share of the lower peak, for joining them."""


def instances(maps: F32) -> I32:
    """Label nuclei from maps (2 or more, H, W) of nucleus probability and depth.

    Probable pixels are flooded from maxima in the smoothed depth; basins not separated by a
    clear saddle are joined.
    """
    from mcp_servers.pathology.compute.kernels import grow

    inside = without_small(maps[0] > CUT, LEAST_PX)
    inside = ~without_small(~inside, HOLE_PX)
    depth = np.asarray(cv2.GaussianBlur(maps[1], (0, 0), SEED_SMOOTHING_PX), dtype=np.float32)
    side = 2 * SEED_REACH_PX + 1
    window = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))
    top = (depth >= cv2.dilate(depth, window) - 1e-6) & inside & (depth > SEED_DEPTH)
    _, seeds = cv2.connectedComponents(top.astype(np.uint8), connectivity=8)
    labels: I32 = np.ascontiguousarray(seeds, dtype=np.int32)
    order = np.clip(depth * 255, 0, 255).astype(np.uint8)
    grow(labels, inside.astype(np.uint8), order, 0)
    return merge_shallow(labels, depth)


def without_small(mask: AnyArray, least: int) -> BoolArray:
    """Remove connected pieces smaller than `least` pixels from a mask."""
    _, parts, sizes, _ = cv2.connectedComponentsWithStats(
        np.asarray(mask, dtype=np.uint8), connectivity=4
    )
    keep = sizes[:, cv2.CC_STAT_AREA] >= least
    keep[0] = False
    return np.asarray(keep[parts], dtype=bool)


def merge_shallow(labels: I32, depth: F32) -> I32:
    """Join adjacent labels whose saddle is above `SADDLE` of the lower peak.

    Labels are joined in order of decreasing saddle; a joined label takes the higher of the
    two peaks.
    """
    count = int(labels.max())
    pairs, saddles = [], []
    for here, there, a, b in (
        (labels[:, 1:], labels[:, :-1], depth[:, 1:], depth[:, :-1]),
        (labels[1:], labels[:-1], depth[1:], depth[:-1]),
    ):
        edge = (here != there) & (here > 0) & (there > 0)
        low, high = np.minimum(here[edge], there[edge]), np.maximum(here[edge], there[edge])
        pairs.append(low.astype(np.int64) * (count + 1) + high)
        saddles.append(np.minimum(a[edge], b[edge]))
    border, index = np.unique(np.concatenate(pairs), return_inverse=True)
    saddle = np.zeros(len(border), dtype=np.float32)
    np.maximum.at(saddle, index, np.concatenate(saddles))
    peak = np.zeros(count + 1, dtype=np.float32)
    np.maximum.at(peak, labels.ravel(), depth.ravel())
    parent = np.arange(count + 1, dtype=np.int32)

    def root(label: int) -> int:
        while parent[label] != label:
            parent[label] = parent[parent[label]]
            label = int(parent[label])
        return label

    for at in np.argsort(-saddle, kind="stable"):
        ends = root(int(border[at] // (count + 1))), root(int(border[at] % (count + 1)))
        shallow, deep = sorted(ends, key=lambda label: (peak[label], -label))
        if shallow != deep and saddle[at] > SADDLE * peak[shallow]:
            parent[shallow] = deep
    whole = np.array([root(label) for label in range(count + 1)], dtype=np.int32)
    return np.asarray(whole[labels], dtype=np.int32)

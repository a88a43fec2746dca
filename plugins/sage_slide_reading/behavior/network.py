"""A small single-stage detector for the regions where readers look.

For each grid cell, it predicts whether a reader would look there, at which magnification
bin, with which box, and how early. Each behavior has its own outputs over shared
features.

Trained with complete IoU for boxes (Zheng et al., IEEE Transactions on Cybernetics 2022)
and binary cross-entropy for relevance, as specified in Pathology-CoT, 4.6.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

STRIDE = 8
MULTIPLE = 16
INPUTS = 7
"""Number of channels: RGB, two positions in the tissue's bounds, and their relative sides."""
WIDTHS = (16, 32, 48, 64)
BOX = 5
"""Number of outputs per box: relevance, two for position, two for size."""
REACH = 1.5
"""Maximum distance, in cells, of a box's center from the center of the proposing cell."""
RARE = -4.0
"""Initial relevance logit, which is low since regions are rare."""


def convolution(before: int, after: int, stride: int = 1, spread: int = 1) -> nn.Sequential:
    """Build a 3 x 3 convolution, dilated by `spread`, with batch normalization and ReLU."""
    layer = nn.Conv2d(before, after, 3, stride, padding=spread, dilation=spread, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(after), nn.ReLU())


class RegionNet(nn.Module):
    """Network from (n, 7, H, W) to (n, behaviors, bins * 5 + 1, H / 8, W / 8).

    H and W must be multiples of 16.
    """

    def __init__(self, behaviors: int, bins: int, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        first, second, third, fourth = widths
        self.behaviors, self.bins = behaviors, bins
        self.fine = nn.Sequential(
            convolution(INPUTS, first, 2), convolution(first, second, 2),
            convolution(second, second), convolution(second, third, 2), convolution(third, third),
        )  # fmt: skip
        self.coarse = nn.Sequential(
            convolution(third, fourth, 2), convolution(fourth, fourth, 1, 2),
            convolution(fourth, fourth, 1, 4), nn.Conv2d(fourth, third, 1),
        )  # fmt: skip
        self.joined = convolution(third, third)
        self.head = nn.Conv2d(third, behaviors * (bins * BOX + 1), 1)
        bias = torch.zeros(behaviors, bins * BOX + 1)
        bias[:, : bins * BOX : BOX] = RARE
        with torch.no_grad():
            assert self.head.bias is not None
            self.head.bias.copy_(bias.flatten())

    def forward(self, image: Tensor) -> Tensor:
        """Compute the raw outputs for (n, 7, H, W) inputs."""
        fine = self.fine(image)
        coarse = functional.interpolate(self.coarse(fine), size=fine.shape[2:], mode="nearest")
        out: Tensor = self.head(self.joined(fine + coarse))
        return out.reshape(len(out), self.behaviors, self.bins * BOX + 1, *out.shape[2:])


def decode_outputs(out: Tensor, sides: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Decode raw outputs as relevance logits, boxes, and order.

    Parameters
    ----------
    out : (n, behaviors, bins * 5 + 1, rows, columns)
    sides : (behaviors, bins) usual side of a box, in input pixels

    Returns
    -------
    logits (n, behaviors, bins, rows, columns), boxes (the same and 4: x, y, width, height in
    input pixels), order (n, behaviors, rows, columns), 0 first and 1 last
    """
    rows, columns = out.shape[-2:]
    parts = out[:, :, :-1].reshape(*out.shape[:2], -1, BOX, rows, columns)
    y = (torch.arange(rows, dtype=out.dtype)[:, None] + 0.5) * STRIDE
    x = (torch.arange(columns, dtype=out.dtype)[None] + 0.5) * STRIDE
    usual = sides[None, :, :, None, None]
    width = usual * torch.exp(parts[:, :, :, 3].clamp(-2.0, 2.0))
    height = usual * torch.exp(parts[:, :, :, 4].clamp(-2.0, 2.0))
    center_x = x + REACH * STRIDE * torch.tanh(parts[:, :, :, 1])
    center_y = y + REACH * STRIDE * torch.tanh(parts[:, :, :, 2])
    boxes = torch.stack((center_x - width / 2, center_y - height / 2, width, height), dim=-1)
    return parts[:, :, :, 0], boxes, torch.sigmoid(out[:, :, -1])


def complete_iou(first: Tensor, second: Tensor) -> Tensor:
    """Compute the (n,) complete IoU of paired boxes (x, y, width, height).

    This is IoU, minus the squared distance of the centers over the squared diagonal of the smallest
    box around both, minus alpha * v, where v compares the aspect ratios and
    alpha = v / (1 - IoU + v).
    """
    a, b = first[:, :2] + first[:, 2:], second[:, :2] + second[:, 2:]
    shared = (torch.minimum(a, b) - torch.maximum(first[:, :2], second[:, :2])).clamp(min=0).prod(1)
    iou = shared / (first[:, 2:].prod(1) + second[:, 2:].prod(1) - shared + 1e-9)
    around = torch.maximum(a, b) - torch.minimum(first[:, :2], second[:, :2])
    apart = ((first[:, :2] + a - second[:, :2] - b) / 2).square().sum(1)
    distance = apart / (around.square().sum(1) + 1e-9)
    angle = torch.atan(first[:, 2] / first[:, 3]) - torch.atan(second[:, 2] / second[:, 3])
    aspect = 4 / math.pi**2 * angle.square()
    with torch.no_grad():
        weight = aspect / (1 - iou + aspect + 1e-9)
    return iou - distance - weight * aspect


def loss(
    out: Tensor, sides: Tensor, goals: list[list[Tensor | None]], ordered: list[bool]
) -> Tensor:
    """Compute the loss: relevance cross-entropy, 1 - complete IoU of boxes, and order distance.

    A cell is relevant for a box if it is within a quarter of the box's sides from its center;
    the cell at the center always is.

    Parameters
    ----------
    out : raw outputs for n images
    sides : (behaviors, bins) usual sides in input pixels
    goals : per image and behavior (boxes, 6): x, y, width, height, bin, order from 0 to 1;
        None if nobody showed the behavior on this slide
    ordered : mask of images whose order counts, unlike that of mirrored images
    """
    logits, boxes, order = decode_outputs(out, sides)
    rows, columns = logits.shape[-2:]
    total = out.new_zeros(())
    shown = 0
    for image, behaviors in enumerate(goals):
        for behavior, goal in enumerate(behaviors):
            if goal is None:
                continue
            shown += 1
            target = torch.zeros_like(logits[image, behavior])
            at: list[tuple[int, int, int]] = []
            which: list[int] = []
            for number, (x, y, width, height, power, _) in enumerate(goal.tolist()):
                down = _cells(y + height / 2, height, rows)
                across = _cells(x + width / 2, width, columns)
                at += [(int(power), row, column) for row in down for column in across]
                which += [number] * (len(down) * len(across))
            if at:
                bin_, row, column = (torch.tensor(part) for part in zip(*at, strict=True))
                wanted = goal[torch.tensor(which)]
                target[bin_, row, column] = 1.0
                overlap = complete_iou(boxes[image, behavior, bin_, row, column], wanted[:, :4])
                total = total + 2.0 * (1.0 - overlap).mean()
                if ordered[image]:
                    late = (order[image, behavior, row, column] - wanted[:, 5]).abs().mean()
                    total = total + 0.5 * late
            relevance = functional.binary_cross_entropy_with_logits(
                logits[image, behavior], target, reduction="sum"
            )
            total = total + relevance / max(1, len(at))
    return total / max(1, shown)


def _cells(center: float, side: float, count: int) -> range:
    """Find the cells on an axis within a quarter side of a center, or the cell that contains it."""
    first = math.ceil((center - side / 4) / STRIDE - 0.5)
    last = math.floor((center + side / 4) / STRIDE - 0.5)
    if last < first:
        first = last = math.floor(center / STRIDE)
    return range(min(max(first, 0), count - 1), max(min(last, count - 1), 0) + 1)

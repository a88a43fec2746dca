"""Small U-Net that predicts nucleus, depth, and offset to the center for each pixel.

The outputs, at the input's resolution, are the logit of nucleus; the logit of depth (the
distance to the outline relative to the nucleus's largest); and the horizontal and
vertical position in the nucleus, -1 to 1 (HoVer-Net, Graham et al., Medical Image
Analysis 2019).
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn

WIDTHS = (32, 64, 128)
OUTPUTS = 4
MULTIPLE = 2 ** len(WIDTHS)
"""Number of which the sides of the input must be multiples."""


def convolution(before: int, after: int) -> nn.Sequential:
    """Build a 3 x 3 convolution with batch normalization and ReLU."""
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
    )


class NucleiNet(nn.Module):
    """Network from (n, 3, H, W) optical densities to (n, 4, H, W) maps.

    H and W must be multiples of `MULTIPLE`.

    The first convolution halves the sides and the last produces four output pixels per input
    pixel, so that nothing is computed at full resolution.
    """

    def __init__(self, widths: tuple[int, ...] = WIDTHS) -> None:
        super().__init__()
        first = nn.Conv2d(3, widths[0], 6, stride=2, padding=2, bias=False)
        stem = nn.Sequential(first, nn.BatchNorm2d(widths[0]), nn.ReLU())
        self.down = nn.ModuleList([nn.Sequential(stem, convolution(widths[0], widths[0]))])
        for before, width in pairwise(widths):
            self.down.append(nn.Sequential(convolution(before, width), convolution(width, width)))
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.reduce = nn.ModuleList(nn.Conv2d(low, high, 1) for low, high in pairs)
        self.up = nn.ModuleList(convolution(high, high) for _, high in pairs)
        self.head = nn.Conv2d(widths[0], 4 * OUTPUTS, 3, padding=1)

    def forward(self, densities: Tensor) -> Tensor:
        """Compute the (n, 4, H, W) maps of nucleus and depth logits and x and y offsets."""
        kept = []
        x = densities
        for level, block in enumerate(self.down):
            if level:
                x = nn.functional.max_pool2d(x, 2)
            x = block(x)
            kept.append(x)
        for reduce, up, skip in zip(self.reduce, self.up, kept[-2::-1], strict=True):
            coarse = nn.functional.interpolate(reduce(x), scale_factor=2.0, mode="nearest")
            x = up(coarse + skip)
        return nn.functional.pixel_shuffle(self.head(x), 2)


def densities(images: Tensor) -> Tensor:
    """Compute base-10 optical density of (n, 3, H, W) values 0 to 255 relative to white at 245."""
    return -torch.log10(images.float().clamp(min=1.0) / 245.0).clamp(max=0.0)

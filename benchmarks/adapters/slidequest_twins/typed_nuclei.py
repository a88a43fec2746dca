"""A network for nuclei with types, as a user would bring one: trained here, in half a minute.

HoVer-Net's weights are not ours to ship. The twin trains a small network with the same three maps
on painted fields, and hands it to the tools as the user's, beside a field that it did not see. This
shows that the tools carry such a question with weights, and nothing about a real network.
Annotations are evaluated here, as TorchScript reads them.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.adapters.slidequest_twins.field import LOOKS, MPP, Field, paint
from benchmarks.adapters.slidequest_twins.twin import training

FIELDS, SIDE, CROP, BATCH, STEPS, RATE = 6, 400, 96, 4, 200, 3e-3
"""Of training: fields, their side in pixels, a crop's, crops of a batch, steps, learning rate."""


def train(path: Path, rng: Generator, steps: int = STEPS) -> None:
    """Write a TorchScript module with the maps np, hv and tp.

    Parameters
    ----------
    path : of the file; none is written where PyTorch is absent
    rng : of fields, crops and the first weights
    steps : of gradient descent
    """
    try:
        import torch
    except ImportError:
        return  # the tool lacks it too: it says so, and the twin is not solved

    with training(rng):
        net = _network()
        pool = [_target(paint(SIDE, rng)) for _ in range(FIELDS)]
        optimizer = torch.optim.AdamW(net.parameters(), lr=RATE)
        falling = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.05, max(1, steps))
        seen = torch.cat([one[5].flatten() for one in pool]).long()
        rare = (1 / torch.bincount(seen, minlength=1 + len(LOOKS))).sqrt()  # the types are uneven
        net.train()
        for _ in range(steps):
            crops = torch.stack([_crop(pool[int(rng.integers(FIELDS))], rng) for _ in range(BATCH)])
            out = net(crops[:, :3])
            inside, kinds = (crops[:, 5] > 0).long(), crops[:, 5].long()
            loss = (
                torch.nn.functional.cross_entropy(out["np"], inside)
                + torch.nn.functional.cross_entropy(out["tp"], kinds, weight=rare)
                + 2 * (((out["hv"] - crops[:, 3:5]) ** 2) * inside[:, None]).mean()
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            falling.step()
        torch.jit.script(net.eval()).save(str(path))


def _network() -> Any:
    """Three scales of two convolutions each, joined; the maps are of the finest."""
    import torch
    from torch import nn

    def block(before: int, after: int) -> nn.Sequential:
        parts: list[nn.Module] = []
        for wide in (before, after):
            parts += [nn.Conv2d(wide, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        return nn.Sequential(*parts)

    class Maps(nn.Module):
        pixel_size: float
        types: list[str]

        def __init__(self) -> None:
            super().__init__()
            self.pixel_size, self.types = MPP, list(LOOKS)
            self.fine, self.middle, self.coarse = block(3, 12), block(12, 16), block(16, 24)
            self.up, self.last = block(24 + 16, 16), block(16 + 12, 16)
            self.nucleus, self.place = nn.Conv2d(16, 2, 1), nn.Conv2d(16, 2, 1)
            self.kind = nn.Conv2d(16, 1 + len(LOOKS), 1)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            fine = self.fine(1.0 - x)
            middle = self.middle(nn.functional.max_pool2d(fine, 2))
            coarse = self.coarse(nn.functional.max_pool2d(middle, 2))
            up = torch.cat([nn.functional.interpolate(coarse, scale_factor=2.0), middle], 1)
            last = torch.cat([nn.functional.interpolate(self.up(up), scale_factor=2.0), fine], 1)
            seen = self.last(last)
            return {"np": self.nucleus(seen), "hv": self.place(seen), "tp": self.kind(seen)}

    return Maps()


def _target(field: Field) -> Any:
    """(6, side, side): the image from 0 to 1, the place along x and y within each nucleus from -1
    to 1, and the type."""
    import torch
    from scipy import ndimage

    place = np.zeros((2, *field.labels.shape), np.float32)
    for number, box in enumerate(ndimage.find_objects(field.labels), 1):
        if box is None:
            continue
        y, x = np.nonzero(field.labels[box] == number)
        for axis, at in enumerate((x, y)):
            away = at - at.mean()
            place[axis][box][y, x] = away / max(1.0, float(np.abs(away).max()))
    image = field.image.astype(np.float32).transpose(2, 0, 1) / 255
    return torch.from_numpy(np.concatenate([image, place, field.kinds[None].astype(np.float32)]))


def _crop(whole: Any, rng: Generator) -> Any:
    y, x = (int(v) for v in rng.integers(0, SIDE - CROP, 2))
    return whole[:, y : y + CROP, x : x + CROP]

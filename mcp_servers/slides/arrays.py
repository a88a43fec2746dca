"""Names for the array types that cross module borders."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

U8: TypeAlias = NDArray[np.uint8]
"""(H, W, 3) RGB or (H, W) gray, 0-255."""
F32: TypeAlias = NDArray[np.float32]
F64: TypeAlias = NDArray[np.float64]
I32: TypeAlias = NDArray[np.int32]
I64: TypeAlias = NDArray[np.int64]
BoolArray: TypeAlias = NDArray[np.bool_]
AnyArray: TypeAlias = NDArray[Any]


def looked_up(table: AnyArray, labels: AnyArray) -> AnyArray:
    """`table[labels]`, rows at a time: numpy makes an eight-byte copy of the labels to look up."""
    out = np.empty(labels.shape, dtype=table.dtype)
    for top in range(0, labels.shape[0], 256):
        out[top : top + 256] = table[labels[top : top + 256]]
    return out

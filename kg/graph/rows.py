"""Rows of JSON in a single buffer, parsed only on access."""

from __future__ import annotations

import json
from collections.abc import Iterable
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sage.core.errors import InputError

NOTHING_MORE = b'{"aliases":[],"definition":null,"identifiers":{},"merges":[],"synonyms":[]}'
"""Row for a node with only a known name."""

NO_MERGES = b'"merges":[]'
"""Substring found only in rows without merges; inside a string its quotes would be escaped."""


_encode = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), check_circular=False
).encode


def encode_row(value: Any) -> bytes:
    """Encode a value as a JSON row."""
    return _encode(value).encode()


class JsonRows:
    """(n,) JSON values in a buffer; row i is `buffer[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, buffer: bytes | mmap, offsets: NDArray[np.int64]) -> None:
        self.buffer = buffer
        self.offsets = offsets
        self._bounds: list[int] | None = None

    @classmethod
    def from_texts(cls, texts: Iterable[bytes]) -> JsonRows:
        """Build rows from encoded JSON values that do not contain line breaks."""
        parts = [text + b"\n" for text in texts]
        offsets = np.zeros(len(parts) + 1, dtype=np.int64)
        np.cumsum([len(p) for p in parts], out=offsets[1:])
        return cls(b"".join(parts), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def raw(self, row: int) -> bytes:
        """Return the encoded row, without its line break."""
        if self._bounds is None:
            self._bounds = self.offsets.tolist()
        return bytes(self.buffer[self._bounds[row] : self._bounds[row + 1] - 1])

    def __getitem__(self, row: int) -> Any:
        start, stop = int(self.offsets[row]), int(self.offsets[row + 1])
        try:
            return json.loads(self.buffer[start:stop])
        except ValueError as error:
            raise InputError(
                f"graph sidecar: row {row} is damaged ({error}); write the sidecar again from the "
                "store or the GraphML file."
            ) from error

"""A CLIP-type Navigator with the user's weights, which compares patches to text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sage_slide_reading.reader.scope import Scope
from sage_slide_reading.reader.types import Question, Region

BATCH = 16


class ClipNavigator:
    """Navigator that ranks patches by cosine similarity between patch and query embeddings.

    The weights are a folder with a CLIP-type model in the transformers layout (such as PLIP).
    """

    name = "clip"
    screens = False  # how well such weights find a thing is unknown: absence is not claimed by them

    def __init__(self, weights: Path) -> None:
        from sage_foundation.zeroshot import load_clip

        self.model, self.tokens, self.side = load_clip(weights, "cpu")
        self._seen: dict[tuple[str, float], Any] = {}

    def relevance(
        self, scope: Scope, regions: Sequence[Region], question: Question, query: str
    ) -> list[float]:
        """See `sage_slide_reading.reader.eyes.Navigator`: one similarity per region, -1 to 1."""
        import cv2

        from sage_foundation.zeroshot import embed_images, embed_texts

        words = embed_texts(self.model, self.tokens, [query], "cpu")
        new = [r for r in regions if (r.id, r.magnification) not in self._seen]
        for start in range(0, len(new), BATCH):
            part = new[start : start + BATCH]
            side = (self.side, self.side)
            images = [
                cv2.resize(scope.pixels(region), side, interpolation=cv2.INTER_AREA)
                for region in part
            ]
            stack = np.asarray(np.stack(images), dtype=np.uint8)
            vectors = embed_images(self.model, stack, self.side, "cpu")
            for region, vector in zip(part, vectors, strict=True):
                self._seen[region.id, region.magnification] = vector
        return [float(self._seen[r.id, r.magnification] @ words[0]) for r in regions]

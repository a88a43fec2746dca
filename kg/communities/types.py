"""Components of a summary."""

from __future__ import annotations

from sage.core.models import Strict


class Sentence(Strict):
    """A sentence and the numbers of the statements on which it is based."""

    text: str
    cites: tuple[int, ...]

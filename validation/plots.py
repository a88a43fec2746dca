"""The figures of an analysis."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from validation.results import Figure

if TYPE_CHECKING:
    from validation.analysis import Analysis
    from validation.study import Study


def draw(analysis: Analysis, study: Study, out: Path) -> dict[str, Figure]:
    """Draw every figure that the finished tests allow; returns them by name."""
    return {}

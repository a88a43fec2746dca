"""Simulated cohorts and slides with known truth; all output is labeled as simulated.

`write_world(folder, seed=...)` writes a bladder cohort as an ordinary cohort folder;
`render_slide(path, seed=...)` paints one slide.
"""

from __future__ import annotations

from validation.simulate.effects import Effects
from validation.simulate.slide import render_slide
from validation.simulate.world import write_world

__all__ = ["Effects", "render_slide", "write_world"]

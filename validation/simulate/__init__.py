"""Simulated cohorts and slides whose truth is known. Everything written here says so.

`write_world(folder, seed=...)` writes a bladder cohort as an ordinary cohort folder;
`render_slide(path, seed=...)` paints one slide; `survival_sample` and
`competing_sample` give arrays for calibration.
"""

from __future__ import annotations

from validation.simulate.effects import Effects
from validation.simulate.sample import competing_sample, survival_sample
from validation.simulate.slide import render_slide
from validation.simulate.world import write_world

__all__ = ["Effects", "competing_sample", "render_slide", "survival_sample", "write_world"]

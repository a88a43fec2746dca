"""Sandboxes for analysis code, preferably Docker.

`choose` picks a sandbox, `availability` reports which ones work on this machine, `sweep`
removes leftovers of dead runs, and `policy.check` inspects code before it runs.
"""

from __future__ import annotations

from sandbox import policy
from sandbox.chooser import availability, choose, sweep

__all__ = ["availability", "choose", "policy", "sweep"]

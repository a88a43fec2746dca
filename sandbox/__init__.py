"""Sandboxes for analysis code: Docker first.

`choose` picks a sandbox, `availability` says what works here, `sweep` removes what dead runs left,
`policy.check` reads code before it runs.
"""

from __future__ import annotations

from sandbox import policy
from sandbox.chooser import availability, choose, sweep

__all__ = ["availability", "choose", "policy", "sweep"]

"""The coding agent: task, data and validation agents under one controller (SAGE, 3.3.1).

`controller.carry_out` runs a frozen contract in a sandbox; `controller.resume` continues after a
person corrected the code; `promote` makes a function of a reviewed analysis a tool of the user's.
"""

from __future__ import annotations

from agents.coding.promotion import promote

__all__ = ["promote"]

"""The SAGE application: command line, settings, state machine, run folders and report.

`from sage import Graph, Cohort, Slide, Claim, Run` imports the Python API, whose classes are
loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sage.api import Claim, Cohort, Graph, Run, Slide

__all__ = ["Claim", "Cohort", "Graph", "Run", "Slide"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'sage' has no attribute {name!r}")
    from sage import api

    return getattr(api, name)

"""Giving memory back between the steps of a tool."""

from __future__ import annotations

import ctypes
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mcp_servers.slides.source import Source


def release(source: Source) -> None:
    """After a pass over a slide: drop its decoded tiles, and return freed memory to the system.

    Blocks of a walk leave holes in the heap that the C library would keep; glibc returns them when
    asked. Elsewhere nothing more is done.
    """
    forget = getattr(source, "forget", None)
    if forget is not None:
        forget()
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)

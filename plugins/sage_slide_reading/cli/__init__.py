"""Commands of slide reading: read, record, draft, train."""

from __future__ import annotations

from sage_slide_reading.cli.read_slide import read_slide
from sage_slide_reading.cli.sessions import app

app.command("read")(read_slide)

__all__ = ["app"]

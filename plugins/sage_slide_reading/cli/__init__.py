"""Slide reading commands: read, measure, record, draft, and train."""

from __future__ import annotations

from sage_slide_reading.cli.findings import import_reading, measure
from sage_slide_reading.cli.read_slide import read_slide
from sage_slide_reading.cli.sessions import app
from sage_slide_reading.cli.train import predict_regions, train_sessions

app.command("train")(train_sessions)
app.command("predict")(predict_regions)
app.command("read")(read_slide)
app.command("measure")(measure)
app.command("maps")(import_reading)

__all__ = ["app"]

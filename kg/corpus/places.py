"""Locations of a graph's files."""

from __future__ import annotations

from pathlib import Path

STORE = "store.sqlite"
GRAPHML = "graph.graphml"
REPORT = "report.json"
RECIPE = "recipe.json"


def graph_folder(out: Path) -> Path:
    """Return the output folder: `out` itself, or `<stem>.kg/` next to a `.graphml` file."""
    return out.with_suffix(".kg") if out.suffix.lower() == ".graphml" else out

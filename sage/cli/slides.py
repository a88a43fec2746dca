"""`sage slides`: measure a cohort's slides; merge and show maps of cells, objects and regions."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sage.cli.measure import measure
from sage.cli.options import AsJson

if TYPE_CHECKING:
    from mcp_servers.measures.maps import SlideMaps

app = typer.Typer(add_completion=False, no_args_is_help=True, help="Measure slides; show maps.")
app.command()(measure)


def store_maps(maps: SlideMaps, out: Path, *, replace: bool) -> dict[str, Any]:
    """Merge maps into those of the same slide below `out`, and return a summary."""
    from mcp_servers.measures.edit import merge_maps
    from mcp_servers.measures.maps import MANIFEST, name_folder, read_maps, write_maps

    folder = out / name_folder(maps.slide)
    if (folder / MANIFEST).exists():
        maps = merge_maps(read_maps(folder), maps, replace=replace)
    write_maps(maps, folder)
    return _summarize(maps, folder)


def _summarize(maps: SlideMaps, folder: Path) -> dict[str, Any]:
    cells = {} if maps.cells is None else _count(maps.cells.codes, maps.cells.types)
    objects = {} if maps.objects is None else _count(maps.objects.codes, maps.objects.kinds)
    regions = {} if maps.regions is None else _count(maps.regions.codes, maps.regions.kinds)
    return {
        "slide": maps.slide,
        "patient": maps.patient,
        "folder": str(folder),
        "tissue_mm2": None if maps.area_um2 is None else maps.area_um2 / 1e6,
        "cells": cells,
        "objects": objects,
        "regions": regions,
    }


def _count(codes: Any, names: tuple[str, ...]) -> dict[str, int]:
    counts = {name: int((codes == code).sum()) for code, name in enumerate(names)}
    bare = int((codes < 0).sum())
    return counts | ({"unclassified": bare} if bare else {})


def print_maps(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print a summary of each slide's maps, one line each or as JSON."""
    from sage.cli.console import print_json

    if as_json:
        print_json(rows)
        return
    for row in rows:
        area = row["tissue_mm2"]
        tissue = "tissue unknown" if area is None else f"{area:.3f} mm²"
        parts = [f"{part} {row[part]}" for part in ("cells", "objects", "regions") if row[part]]
        text = "; ".join(parts) or "empty"
        typer.echo(f"{row['slide']} (patient {row['patient']}): {tissue}; {text}")
        for note in row.get("notes") or ():
            typer.echo(f"  {note}")


@app.command("maps")
def show_maps(
    folder: Annotated[Path, typer.Argument(help="Folder with maps for one or more slides.")],
    as_json: AsJson = False,
) -> None:
    """Show the contents of maps: tissue, cells by type, objects, and regions.

    Example: sage slides maps maps
    """
    from mcp_servers.measures.maps import list_maps, read_maps

    rows = [_summarize(read_maps(path), path) for path in list_maps(folder)]
    print_maps(rows, as_json=as_json)

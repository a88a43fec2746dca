"""`sage slides maps`: maps of cells, objects and regions: imported, exported, shown."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson

if TYPE_CHECKING:
    from mcp_servers.measures.maps import SlideMaps

app = typer.Typer(add_completion=False,
    name="maps", help="Maps of cells, objects and regions: import, export, show.",
    no_args_is_help=True,
)  # fmt: skip


Format = Literal["qupath", "cellvit", "hovernet", "inform", "steinbock", "hooknet", "table"]
"""Formats of other programs."""
Around = Literal["none", "hull", "box"]
"""Shape taken as the analyzed tissue."""


class Also(StrEnum):
    """Formats that maps are exported to."""

    ANNDATA = "anndata"
    QUPATH = "qupath"
    SPATIALDATA = "spatialdata"


@app.callback()
def group() -> None:
    """Maps of cells, objects and regions: import, export, show."""


@app.command("import")
def import_maps(
    form: Annotated[
        Format,
        typer.Argument(
            metavar="FORMAT",
            help="qupath (GeoJSON or measurements), cellvit, hovernet, inform, steinbock, hooknet "
            "(CSV or JSON), table",
        ),
    ],
    file: Annotated[Path, typer.Argument(help="The file that the program wrote.")],
    out: Annotated[Path, typer.Option(help="Folder of maps, one folder per slide.")] = Path("maps"),
    mpp: Annotated[
        float | None,
        typer.Option(help="µm per pixel of the file's coordinates; none where they are µm.", min=0),
    ] = None,
    slide: Annotated[
        str | None, typer.Option(help="Name of the slide; default: the file's name.")
    ] = None,
    patient: Annotated[
        str | None, typer.Option(help="Its patient; default: from the slide's name.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option("--type", metavar="THEIRS=OURS", help="A type's name; repeatable."),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Rows of a table to keep; repeatable."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="TOML that names the columns of a table.")
    ] = None,
    window: Annotated[
        Around, typer.Option(help="Tissue if the file has only cells; none: unknown.")
    ] = "none",
    replace: Annotated[
        bool, typer.Option("--replace", help="Take these cells, objects ... where there are some.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import cells, objects and regions of another program as typed maps in µm.

    The result is joined to maps of the slide in OUT, e.g. cells of one program and objects of
    another. Types that SAGE does not know are kept as other_NAME.

    Example:

        sage slides maps import qupath slide.geojson --mpp 0.25 --out maps

        sage slides maps import cellvit cells.json --mpp 0.25 --slide TCGA-XX-0001 --out maps

        sage slides maps import table cells.csv --mapping columns.toml --window hull --out maps
    """
    from mcp_servers.measures.imports.names import check_own
    from sage.cli.console import print_json
    from sage.cli.tools_support import split_setting
    from sage.core.errors import InputError

    if not file.is_file():
        raise InputError(f'"{file}" is not a file')
    own = dict(split_setting(word) for word in types or ())
    check_own(own)
    kept = dict(split_setting(word) for word in where or ())
    if (mapping is None) == (form == "table"):
        raise InputError("the format table needs --mapping FILE, and only this format takes it")
    found = [
        store_maps(maps, out, replace=replace)
        for maps in _read_file(form, file, mpp, slide, patient, own, kept, mapping, window)
    ]
    if as_json:
        print_json(found)
        return
    for row in found:
        typer.echo(describe_maps(row))


def store_maps(maps: SlideMaps, out: Path, *, replace: bool) -> dict[str, object]:
    """Join maps to those of the same slide below `out`; a summary of the result."""
    from mcp_servers.measures.imports.merge import merge_maps
    from mcp_servers.measures.maps import MANIFEST, read_maps, write_maps

    folder = out / _folder(maps.slide)
    if (folder / MANIFEST).exists():
        maps = merge_maps(read_maps(folder), maps, replace=replace)
    write_maps(maps, folder)
    return _summary(maps, folder)


def _read_file(
    form: Format,
    file: Path,
    mpp: float | None,
    slide: str | None,
    patient: str | None,
    types: dict[str, str],
    where: dict[str, str],
    mapping: Path | None,
    window: Around,
) -> Iterator[SlideMaps]:
    from mcp_servers.measures.imports import cells, outlines, tables
    from mcp_servers.workers.cohort import parse_patient
    from sage.core.errors import InputError

    is_json = file.suffix.lower() in (".json", ".geojson")
    tabular = form in ("inform", "steinbock", "table")
    if tabular or (form == "qupath" and not is_json):
        columns = tables.read_mapping(mapping) if mapping else tables.preset(form, file)
        yield from tables.read_table(
            file, columns, mpp=mpp, slide=slide, patient=patient, types=types, where=where,
            window=window,
        )  # fmt: skip
        return
    if mpp is None:
        raise InputError(f"{file}: the coordinates are pixels; give the pixel size in µm (--mpp)")
    name = slide or file.name.split(".")[0]
    who = patient or parse_patient(Path(name))
    if form == "hooknet" and not is_json:
        yield from outlines.read_hooknet_table(file, mpp=mpp, where=where)
    elif form == "hooknet":
        yield outlines.read_hooknet_json(file, mpp=mpp, slide=name, patient=who)
    elif form == "qupath":
        yield outlines.read_qupath_geojson(file, mpp=mpp, slide=name, patient=who, types=types)
    else:
        yield cells.read_cells_json(
            file, mpp=mpp, slide=name, patient=who, types=types, window=window
        )


def _folder(slide: str) -> str:
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in slide).lstrip(".")
    return name or "slide"


def _summary(maps: SlideMaps, folder: Path) -> dict[str, object]:
    cells = {} if maps.cells is None else _counts(maps.cells.codes, maps.cells.types)
    objects = {} if maps.objects is None else _counts(maps.objects.codes, maps.objects.kinds)
    regions = {} if maps.regions is None else _counts(maps.regions.codes, maps.regions.kinds)
    return {
        "slide": maps.slide,
        "patient": maps.patient,
        "folder": str(folder),
        "tissue_mm2": None if maps.area_um2 is None else maps.area_um2 / 1e6,
        "cells": cells,
        "objects": objects,
        "regions": regions,
    }


def _counts(codes: object, names: tuple[str, ...]) -> dict[str, int]:
    return {name: int((codes == code).sum()) for code, name in enumerate(names)}  # type: ignore[attr-defined]


def describe_maps(row: dict[str, object]) -> str:
    """Summary of a slide's maps in a line."""
    area = row["tissue_mm2"]
    tissue = "tissue unknown" if area is None else f"{area:.3f} mm²"
    parts = [f"{what} {row[what]}" for what in ("cells", "objects", "regions") if row[what]]
    return f"{row['slide']} (patient {row['patient']}): {tissue}; {'; '.join(parts) or 'empty'}"


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="Folder of maps, of one slide or of many.")],
    as_json: AsJson = False,
) -> None:
    """Show what maps hold: tissue, cells by type, objects, regions.

    Example: sage slides maps show maps
    """
    from mcp_servers.measures.maps import list_maps, read_maps
    from sage.cli.console import print_json

    found = [_summary(read_maps(path), path) for path in list_maps(folder)]
    if as_json:
        print_json(found)
        return
    for row in found:
        typer.echo(describe_maps(row))


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(help="Folder of maps, of one slide or of many.")],
    to: Annotated[Also, typer.Option(help="anndata (cells), spatialdata or qupath (all of it).")],
    out: Annotated[Path, typer.Option(help="Folder for the files.")] = Path("exported"),
) -> None:
    """Export maps to AnnData or SpatialData (in µm), or to QuPath (in level-0 pixels).

    Example: sage slides maps export maps --to anndata --out exported
    """
    from mcp_servers.measures.exports import EXPORTS
    from mcp_servers.measures.maps import list_maps, read_maps
    from sage.core.hooks import EXPORTED, log_command
    from sage.settings import load

    log_command(load(), EXPORTED, folder, command="maps export")
    suffix, write = EXPORTS[to.value]
    left_out = []
    for path in list_maps(folder):
        maps = read_maps(path)
        if maps.is_empty or (to is Also.ANNDATA and maps.cells is None):
            left_out.append(maps.slide)
            continue
        out.mkdir(parents=True, exist_ok=True)
        target = out / f"{_folder(maps.slide)}{suffix}"
        write(maps, target)
        typer.echo(str(target))
    if left_out:
        typer.echo(f"nothing to export, left out: {', '.join(left_out)}", err=True)

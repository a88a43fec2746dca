"""`sage exchange maps`: convert maps of cells, objects, and regions to and from other programs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from sage.cli.options import AsJson
from sage.core.errors import InputError

if TYPE_CHECKING:
    from mcp_servers.measures.maps import SlideMaps

app = typer.Typer(
    no_args_is_help=True, help="Import and export maps of cells, objects and regions."
)

Format = Literal["qupath", "cellvit", "hovernet", "inform", "steinbock", "hooknet", "table"]
"""Programs from which maps can be imported."""
Around = Literal["none", "hull", "box"]
"""Shape to assume for the analyzed tissue."""
Target = Literal["anndata", "qupath", "spatialdata"]
"""Formats to which maps can be exported."""


@app.command("import")
def import_maps(
    form: Annotated[
        Format,
        typer.Argument(
            metavar="FORMAT",
            help="qupath (GeoJSON or measurements, XML from ASAP or HALO), cellvit, hovernet, "
            "inform, steinbock, hooknet (CSV or JSON), table",
        ),
    ],
    file: Annotated[Path, typer.Argument(help="File written by the program.")],
    out: Annotated[
        Path, typer.Option(help="Folder for maps, with one subfolder per slide.")
    ] = Path("maps"),
    mpp: Annotated[
        float | None,
        typer.Option(help="µm per pixel of the file's coordinates; omit if they are in µm.", min=0),
    ] = None,
    slide: Annotated[str | None, typer.Option(help="Slide name; default: the file name.")] = None,
    patient: Annotated[
        str | None, typer.Option(help="Patient ID for the slide; default: from the slide name.")
    ] = None,
    types: Annotated[
        list[str] | None,
        typer.Option(
            "--type", metavar="THEIRS=OURS", help="Name of a type, as TEXT=NAME; repeatable."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN=VALUE", help="Keep only these table rows; repeatable."),
    ] = None,
    mapping: Annotated[
        Path | None, typer.Option(help="TOML file that assigns roles to the table's columns.")
    ] = None,
    window: Annotated[
        Around, typer.Option(help="Assumed tissue if the file has only cells; none: unknown.")
    ] = "none",
    replace: Annotated[
        bool, typer.Option("--replace", help="Import only cells, objects ... if there are several.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Import cells, objects and regions from another program as typed maps in µm.

    The result is merged with existing maps of the slide in OUT, e.g. cells from one program and
    objects from another. Unknown types are kept as other_NAME.

    Example:

        sage exchange maps import qupath slide.geojson --mpp 0.25 --out maps

        sage exchange maps import cellvit cells.json --mpp 0.25 --slide TCGA-XX-0001 --out maps

        sage exchange maps import table cells.csv --mapping columns.toml --window hull --out maps
    """
    from sage.cli.slides import print_maps, store_maps
    from sage.cli.tools_support import split_setting
    from sage_exchange.maps.names import check_own

    if not file.is_file():
        raise InputError(f'"{file}" is not a file')
    own = dict(split_setting(word) for word in types or ())
    check_own(own)
    kept = dict(split_setting(word) for word in where or ())
    if (mapping is None) == (form == "table"):
        raise InputError(
            "--mapping FILE is required for the table format and not allowed for other formats"
        )
    notes: list[str] = []
    found = [
        store_maps(maps, out, replace=replace) | {"notes": notes}
        for maps in _read_file(form, file, mpp, slide, patient, own, kept, mapping, window, notes)
    ]
    print_maps(found, as_json=as_json)


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
    notes: list[str],
) -> Iterator[SlideMaps]:
    from mcp_servers.workers.cohort import parse_patient
    from sage_exchange.maps import cells, outlines, tables

    is_json = file.suffix.lower() in (".json", ".geojson", ".xml", ".annotations")
    tabular = form in ("inform", "steinbock", "table")
    if tabular or (form == "qupath" and not is_json):
        columns = tables.read_mapping(mapping) if mapping else tables.preset(form, file)
        yield from tables.read_table(
            file, columns, mpp=mpp, slide=slide, patient=patient, types=types, where=where,
            window=window,
        )  # fmt: skip
        return
    if mpp is None:
        raise InputError(
            f"{file}: the coordinates are in pixels; give the pixel size in µm (--mpp)"
        )
    name = slide or file.name.split(".")[0]
    who = patient or parse_patient(Path(name))
    if form == "hooknet" and not is_json:
        yield from outlines.read_hooknet_table(file, mpp=mpp, where=where)
    elif form == "hooknet":
        yield outlines.read_hooknet_json(file, mpp=mpp, slide=name, patient=who)
    elif form == "qupath":
        yield outlines.read_qupath_geojson(
            file, mpp=mpp, slide=name, patient=who, types=types, notes=notes
        )
    else:
        yield cells.read_cells_json(
            file, mpp=mpp, slide=name, patient=who, types=types, window=window
        )


@app.command("export")
def export_maps(
    folder: Annotated[Path, typer.Argument(help="Folder with maps for one or more slides.")],
    to: Annotated[
        Target, typer.Option(help="anndata (cells only), spatialdata or qupath (everything).")
    ],
    out: Annotated[Path, typer.Option(help="Folder for the exported files.")] = Path("exported"),
) -> None:
    """Export maps to AnnData or SpatialData (in µm), or to QuPath (in level-0 pixels).

    Example: sage exchange maps export maps --to anndata --out exported
    """
    from mcp_servers.measures.maps import list_maps, name_folder, read_maps
    from sage.core.hooks import EXPORTED, log_command
    from sage.settings import load
    from sage_exchange.maps.exports import EXPORTS

    log_command(load(), EXPORTED, folder, command="exchange maps export")
    suffix, write = EXPORTS[to]
    left_out = []
    for path in list_maps(folder):
        maps = read_maps(path)
        if maps.is_empty or (to == "anndata" and maps.cells is None):
            left_out.append(maps.slide)
            continue
        out.mkdir(parents=True, exist_ok=True)
        target = out / f"{name_folder(maps.slide)}{suffix}"
        write(maps, target)
        typer.echo(str(target))
    if left_out:
        typer.echo(f"nothing to export; skipped: {', '.join(left_out)}", err=True)

"""Files that name other files: a program that may write one must not read the others through it."""

from __future__ import annotations

import contextlib
import sqlite3
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError

SECRET = np.random.default_rng(5).integers(0, 99, (48, 64, 3), dtype=np.uint8)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder that may be read, beside a secret that may not."""
    Image.fromarray(SECRET).save(tmp_path / "secret.png")
    tifffile.imwrite(
        tmp_path / "secret.tif", SECRET, photometric="rgb", compression="zlib", rowsperstrip=16
    )
    (tmp_path / "data").mkdir()
    return tmp_path / "data"


def pixels(path: Path) -> Any:
    with Slide.open(path, mpp=0.5) as slide:
        return slide.read(0, 0, slide.width, slide.height)


def mirax(folder: Path, part: str) -> Path:
    """A MIRAX slide of one tile, which is the whole file `part`."""
    own = folder / "s"
    own.mkdir()
    section = {
        "OVERLAP_X": 0, "OVERLAP_Y": 0, "MICROMETER_PER_PIXEL_X": 0.5,
        "MICROMETER_PER_PIXEL_Y": 0.5, "IMAGE_FORMAT": "PNG", "IMAGE_FILL_COLOR_BGR": 0,
        "DIGITIZER_WIDTH": 64, "DIGITIZER_HEIGHT": 48, "IMAGE_CONCAT_FACTOR": 0,
    }  # fmt: skip
    groups = {
        "GENERAL": {
            "SLIDE_VERSION": "01.02", "SLIDE_ID": "ABC", "IMAGENUMBER_X": 1, "IMAGENUMBER_Y": 1,
            "OBJECTIVE_MAGNIFICATION": 20,
        },
        "HIERARCHICAL": {
            "HIER_COUNT": 1, "NONHIER_COUNT": 0, "INDEXFILE": "Index.dat",
            "HIER_0_NAME": "Slide zoom level", "HIER_0_COUNT": 1, "HIER_0_VAL_0_SECTION": "LEVEL",
        },
        "DATAFILE": {"FILE_COUNT": 1, "FILE_0": part},
        "LEVEL": section,
    }  # fmt: skip
    lines = [
        line
        for group, keys in groups.items()
        for line in (f"[{group}]", *(f"{key}={value}" for key, value in keys.items()))
    ]
    (own / "Slidedat.ini").write_text("\n".join(lines), encoding="ascii")
    at = 16
    index = struct.pack("<12i", at, 0, at + 4, 0, at + 12, 1, 0, 0, 0, 9, 0, 0)
    (own / "Index.dat").write_bytes(b"01.02ABC" + index)
    (folder / "s.mrxs").write_bytes(b"a slide of many files")
    return folder / "s.mrxs"


def test_a_slide_of_many_files_is_read_from_its_own_folder_alone(data: Path) -> None:
    path = mirax(data, "tile.png")
    (data / "s" / "tile.png").write_bytes((data.parent / "secret.png").read_bytes())
    assert (pixels(path) == SECRET).all()
    index = data / "s" / "Slidedat.ini"
    index.write_text(index.read_text().replace("tile.png", "../../secret.png"))
    with pytest.raises(InputError, match="outside its own folder"):
        pixels(path)


def test_an_index_of_jpeg_parts_names_none_elsewhere(data: Path) -> None:
    Image.fromarray(SECRET).save(data.parent / "secret.jpg", restart_marker_rows=1)
    lines = ["[Virtual Microscope Specimen]", "NoLayers=1", "NoJpegColumns=1", "NoJpegRows=1"]
    lines += [f"{key}=../secret.jpg" for key in ("ImageFile", "MapFile", "MacroImage")]
    (data / "s.svs").write_text("\n".join(lines))
    with pytest.raises(InputError, match="outside its own folder"):
        pixels(data / "s.svs")


def ome(path: Path, part: str) -> None:
    """An OME-TIFF of noise that says its plane lies in the file `part`."""
    identity = '<UUID FileName="{}">urn:uuid:00000000-0000-0000-0000-00000000000{}</UUID>'
    tifffile.imwrite(
        path, np.full_like(SECRET, 200), photometric="rgb", metadata=None,
        description='<?xml version="1.0"?><OME xmlns="http://www.openmicroscopy.org/Schemas/OME/'
        '2016-06" UUID="urn:uuid:00000000-0000-0000-0000-000000000001"><Image ID="Image:0">'
        '<Pixels ID="Pixels:0" DimensionOrder="XYCZT" Type="uint8" SizeX="64" SizeY="48" SizeC="3" '
        'SizeZ="1" SizeT="1"><Channel ID="Channel:0:0" SamplesPerPixel="3"/><TiffData IFD="0" '
        f'PlaneCount="1">{identity.format(part, 2)}</TiffData></Pixels></Image></OME>',
    )  # fmt: skip


def ndtiff(path: Path, part: str) -> None:
    """An NDTiff whose index says that its plane lies in the file `part`."""
    tifffile.imwrite(
        path, np.full_like(SECRET, 200), photometric="rgb", metadata=None,
        extratags=[(51123, 2, 9, '{"a": 10}', True)],
    )  # fmt: skip
    whole = path.read_bytes()
    with tifffile.TiffFile(path) as file:
        first = file.pages[0].offset
    room = struct.pack("<II", 483729, 2) + struct.pack("<III", 0, 2355492, 2) + b"{}"
    # the head of an NDTiff lies where the first directory does: move that to the end
    directory = whole[first:]
    moved = whole[:4] + struct.pack("<I", len(whole)) + room
    path.write_bytes(moved + whole[len(moved) :] + directory)
    name = part.encode()
    axes = b'{"t":0}'
    entry = struct.pack("<I", len(axes)) + axes + struct.pack("<I", len(name)) + name
    entry += struct.pack("<IiiiiIii", 0, 64, 48, 2, 0, 0, 0, 0)
    (path.parent / "NDTiff.index").write_bytes(entry)


@pytest.mark.parametrize("write", [ome, ndtiff])
def test_planes_of_another_tiff_are_not_read(data: Path, write: Any) -> None:
    write(data / "s.tif", str(data.parent / "secret.tif"))
    assert (pixels(data / "s.tif") == 200).all()


def test_a_database_that_counts_without_end_is_not_asked(data: Path) -> None:
    with contextlib.closing(sqlite3.connect(data / "s.svslide")) as base:
        base.execute(
            "CREATE VIEW DataManagerSQLiteConfigXPO AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT 'x' AS TableName, i FROM n WHERE i < 0"
        )
    with pytest.raises(InputError, match="more than tables"):
        pixels(data / "s.svslide")

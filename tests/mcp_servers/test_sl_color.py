"""Colors come from decoding, not from tags; levels that disagree in color are refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import imagecodecs
import numpy as np
import pytest
import tifffile

from mcp_servers.slides.arrays import U8
from mcp_servers.slides.slide import Slide
from sage.core.errors import InputError
from tests.mcp_servers.slide_tools import blobs, context, pyramid, run

SIDE = 256
META = {"axes": "YXS", "PhysicalSizeX": 0.5, "PhysicalSizeXUnit": "µm", "PhysicalSizeY": 0.5}


def tiles(image: U8, stored_as: str) -> Iterator[bytes]:
    """Whole JPEG streams; "YCBCR" with a JFIF marker, "RGB" with Adobe's."""
    for top in range(0, image.shape[0], SIDE):
        for left in range(0, image.shape[1], SIDE):
            tile = np.ascontiguousarray(image[top : top + SIDE, left : left + SIDE])
            yield imagecodecs.jpeg8_encode(tile, 95, colorspace="RGB", outcolorspace=stored_as)


def ome(path: Path, image: U8, stored_as: list[str], tag: str) -> Path:
    """An OME-TIFF whose levels hold JPEG streams of the colors named, all under one tag."""
    levels = [np.ascontiguousarray(image[:: 2**k, :: 2**k]) for k in range(len(stored_as))]
    with tifffile.TiffWriter(path, ome=True) as writer:
        for number, (level, stored) in enumerate(zip(levels, stored_as, strict=True)):
            more = {"metadata": META, "subifds": len(levels) - 1} if number == 0 else {}
            writer.write(
                tiles(level, stored), shape=level.shape, dtype=np.uint8, tile=(SIDE, SIDE),
                photometric="rgb", compression="jpeg", subfiletype=int(number > 0), **more,
            )  # fmt: skip
    with tifffile.TiffFile(path, mode="r+") as file:  # the writer chooses a tag of its own
        for page in (file.pages[0], *(file.pages[0].pages or ())):
            page.tags["PhotometricInterpretation"].overwrite({"rgb": 2, "ycbcr": 6}[tag])
    return path


@pytest.mark.parametrize("stored_as", ["YCBCR", "RGB"])
@pytest.mark.parametrize("tag", ["rgb", "ycbcr"])
def test_the_stream_decides_over_the_tag(tmp_path: Path, stored_as: str, tag: str) -> None:
    image = blobs(1024, 1024)
    path = ome(tmp_path / "a.ome.tif", image, [stored_as, stored_as], tag)
    with Slide.open(path) as slide:
        full = slide.read(0, 0, 1024, 1024)
        half = slide.source.read(0, 0, 0, 1024, 1024, reduce=2)
        assert np.abs(full.mean((0, 1)) - image.mean((0, 1))).max() < 2
        assert np.abs(half.mean((0, 1)) - image.mean((0, 1))).max() < 2
        assert any("according to the streams" in note for note in slide.warnings) == (
            (stored_as == "YCBCR") != (tag == "ycbcr")
        )


def test_a_pyramid_of_two_colors_is_refused(tmp_path: Path) -> None:
    image = blobs(1024, 1024)
    path = tmp_path / "a.tif"
    shifted = image[::2, ::2, ::-1]  # the second level in BGR
    with tifffile.TiffWriter(path) as writer:
        writer.write(image, tile=(SIDE, SIDE), photometric="rgb")
        writer.write(shifted, tile=(SIDE, SIDE), photometric="rgb", subfiletype=1)
    with pytest.raises(InputError, match="levels 0 and 1"):
        Slide.open(path)


def test_a_pixel_size_against_the_files_own_stands_in_every_result(tmp_path: Path) -> None:
    pyramid(tmp_path / "a.svs", blobs(700, 700), mpp=0.5)
    told = run(context(tmp_path), "tissue_mask", slide="a.svs", mpp=0.25)["warnings"]
    assert any("0.25 µm, but the file states 0.5" in note for note in told)
    quiet = run(context(tmp_path), "tissue_mask", slide="a.svs", mpp=0.501)["warnings"]
    assert not any("the file states" in note for note in quiet)

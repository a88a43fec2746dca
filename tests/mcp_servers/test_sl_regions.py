"""Regions of interest: every tool that takes them keeps to them, in the same way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sage.core.errors import InputError
from sage_foundation.features import read_coords
from tests.mcp_servers.slide_tools import blobs, context, pyramid, run

CUT: dict[str, Any] = {"slide": "s.svs", "tile_px": 64, "at_mpp": 0.5, "min_tissue": 0.3}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regions")
    pyramid(folder / "s.svs", blobs(900, 1000))
    return folder


def region(folder: Path, x: float, y: float, side: float) -> str:
    ring = [[x, y], [x + side, y], [x + side, y + side], [x, y + side], [x, y]]
    (folder / "r.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    return "r.geojson"


def test_all_tools_that_cut_tiles_take_the_same_ones_of_a_region(folder: Path) -> None:
    least = 0.95
    given = CUT | {"regions": region(folder, 336, 300, 256), "min_in_region": least}
    kept = {}
    for name, file in (("tile_slide", "coords"), ("encode_tiles", "features")):
        ctx = context(folder)
        got = run(ctx, name, **given)
        kept[name] = read_coords(ctx.roots.output / got[file])[0]
        assert got["tiles"] == len(kept[name])
    assert np.array_equal(kept["tile_slide"], kept["encode_tiles"])
    corners = kept["tile_slide"]
    assert 0 < len(corners) < run(context(folder), "tile_slide", **CUT)["tiles"]
    drawn = given | {"tumor_regions": given["regions"]}
    patches = run(context(folder), "region_patches", **drawn)
    assert patches["tumor"] + patches["peritumoral"] + patches["rest"] == len(corners)
    reach = 64 * (1 - least) + 16  # and a cell of the tissue mask
    assert (corners >= np.array([336, 300]) - reach).all()
    assert (corners + 64 <= np.array([336 + 256, 300 + 256]) + reach).all()


def test_coordinates_and_regions_together_are_refused(folder: Path) -> None:
    run(context(folder), "tile_slide", **CUT)
    with pytest.raises(InputError, match="coords and regions"):
        run(
            context(folder), "encode_tiles", slide="s.svs", coords="out/s.tiles.h5",
            regions=region(folder, 300, 300, 200),
        )  # fmt: skip


def test_a_region_of_few_cells_of_the_mask_is_said_to_be_rough(folder: Path) -> None:
    for name, side, rough in (("ihc", 40, True), ("ihc", 300, False)):
        given = {"slide": "s.svs", "regions": region(folder, 450, 400, side)}
        notes = run(context(folder), name, **given)["warnings"]
        assert any("cells of the tissue mask" in note for note in notes) == rough

"""SpatialData stores in SAGE's two coordinate systems; requires `spatialdata`.

"global" is in level-0 pixels, with the origin at the slide's corner, x to the right and y down;
"um" is in µm, if the pixel size is known.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

PIXELS, MICRONS = "global", "um"

Elements = dict[str, Any]


def make_transformations(mpp: float | None, scale: float = 1.0) -> dict[str, Any]:
    """Create an element's transformations to both systems; a unit is `scale` level-0 pixels."""
    from spatialdata.transformations import Identity, Scale

    def scale_by(factor: float) -> Any:
        return Identity() if factor == 1.0 else Scale([factor, factor], axes=("x", "y"))

    systems = {PIXELS: scale_by(scale)}
    if mpp is not None:
        systems[MICRONS] = scale_by(scale * mpp)
    return systems


def write_store(path: Path, elements: Elements, about: dict[str, Any]) -> None:
    """Write a store; images and features are written in parts."""
    import dask
    import spatialdata

    data = spatialdata.SpatialData.init_from_elements(elements, attrs={"sage": about})
    with warnings.catch_warnings(), dask.config.set(scheduler="synchronous"):
        warnings.filterwarnings("ignore", message="zarr v3 autosharding")  # said for each array
        data.write(path, update_sdata_path=False)

"""Estimation of the analyzed tissue for files that list only cells."""

from __future__ import annotations

from typing import Any, Literal

from mcp_servers.slides.arrays import F64

Window = Literal["none", "hull", "box"]
"""Shape around the detected cells (hull or box); with none, densities are undefined."""


def window_of(window: Window, points: F64) -> tuple[Any, dict[str, str]]:
    """Estimate the window as a multipolygon in µm, or None; also return the method used."""
    import shapely

    if window == "none" or len(points) < 3:
        return None, {}
    around = shapely.MultiPoint(points)
    area = around.convex_hull if window == "hull" else shapely.box(*around.bounds)
    if area.area == 0:  # the points lie on a line
        return None, {}
    return shapely.MultiPolygon([area]), {"window": f"{window} of the cells"}

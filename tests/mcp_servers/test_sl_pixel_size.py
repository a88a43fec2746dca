"""What a file says of its pixel size: every unit, both axes, and what is no scan at all."""

from __future__ import annotations

import pytest

from mcp_servers.slides.metadata import (
    PLAUSIBLE_MPP,
    aperio_mpp,
    number_pair,
    ome_mpp,
    resolution_mpp,
)

INCH, CENTIMETER = 2, 3


def tags(x: object, y: object, unit: object) -> dict[str, object]:
    return {"XResolution": x, "YResolution": y, "ResolutionUnit": unit}


@pytest.mark.parametrize(
    ("x", "y", "unit", "mpp"),
    [
        ((40_000, 1), (20_000, 1), CENTIMETER, (0.25, 0.5)),  # the axes differ
        ((100_000, 1), (50_800, 1), INCH, (0.254, 0.5)),
        ((101_600, 2), (101_600, 4), INCH, (0.5, 1.0)),  # fractions
        ((1270, 1), (1270, 1), INCH, (20.0, 20.0)),  # the coarsest that is taken for a scan's
        ((1269, 1), (1270, 1), INCH, None),
        ((1270, 1), (1269, 1), INCH, None),
        ((72, 1), (72, 1), INCH, None),  # a printer's default
        ((40_000, 1), (40_000, 1), 1, None),  # no unit
        ((40_000, 1), (40_000, 1), "3", None),
        ((0, 1), (40_000, 1), CENTIMETER, None),
        ((40_000, 1), (40_000, 0), CENTIMETER, None),
        ((40_000, 1), None, CENTIMETER, None),
        (40_000, (40_000, 1), CENTIMETER, None),
    ],
)
def test_resolution_tags(
    x: object, y: object, unit: object, mpp: tuple[float, float] | None
) -> None:
    found = resolution_mpp(tags(x, y, unit))
    assert found == (None if mpp is None else pytest.approx(mpp, rel=1e-12))


@pytest.mark.parametrize(
    ("text", "mpp"),
    [
        ("Aperio|AppMag = 40|MPP = 0.2520|Left = 1", 0.252),
        ("Aperio|MPP=0,4990", 0.499),
        ("Aperio|AppMag = 40", None),
        ("Aperio|MPP = 353", None),
    ],
)
def test_aperio_descriptions(text: str, mpp: float | None) -> None:
    assert aperio_mpp(text) == (None if mpp is None else (mpp, mpp))


@pytest.mark.parametrize(
    ("unit", "size", "mpp"),
    [("µm", 0.5, 0.5), ("μm", 0.5, 0.5), ("um", 0.5, 0.5), ("nm", 250, 0.25), ("mm", 0.005, 5.0),
     ("cm", 0.0005, 5.0), ("in", 0.5, None), (None, 0.5, 0.5)],
)  # fmt: skip
def test_ome_units(unit: str | None, size: float, mpp: float | None) -> None:
    named = "" if unit is None else f'PhysicalSizeXUnit="{unit}" PhysicalSizeYUnit="{unit}"'
    xml = (
        '<OME xmlns="http://www.openmicroscopy.org/Schemas/OME/2016-06"><Image><Pixels '
        f'PhysicalSizeX="{size}" PhysicalSizeY="{size * 2}" {named}/></Image></OME>'
    )
    expected = None if mpp is None else pytest.approx((mpp, 2 * mpp), rel=1e-12)
    assert ome_mpp(xml) == expected
    assert ome_mpp(xml.replace("PhysicalSizeY=", "SizeY=")) is None
    assert ome_mpp(xml[:40]) is None
    assert ome_mpp("<OME/>") is None


def test_only_sizes_of_a_scan_of_tissue_are_believed() -> None:
    low, high = PLAUSIBLE_MPP
    assert (low, high) == (0.02, 100.0)
    assert number_pair(low, high) == (low, high)
    assert number_pair(low * 0.999, 1) is None
    assert number_pair(1, high * 1.001) is None
    assert number_pair("0.25", 0.5) == (0.25, 0.5)
    assert number_pair("a quarter", 0.25) is None

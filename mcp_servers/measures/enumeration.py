"""Systematic enumeration of hundreds or thousands of measurements on a cohort's maps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from typing import Literal

from mcp_servers.measures import nodes
from mcp_servers.measures.language import Arithmetic as Quotient
from mcp_servers.measures.language import Log2, Measurement, Rule, poolable
from mcp_servers.measures.maps import Held
from mcp_servers.measures.nodes import Node, Statistic
from mcp_servers.measures.places import (
    INSPECTED,
    READ,
    TISSUE,
    Area,
    Cells,
    Margin,
    Objects,
    Region,
)

Suite = Literal["standard", "full"]
CELL_RADII = {"standard": (30.0,), "full": (15.0, 30.0, 60.0, 100.0)}
OBJECT_RADII = {"standard": (1000.0,), "full": (250.0, 500.0, 1000.0, 2000.0)}
MARGINS = {"standard": (100.0,), "full": (50.0, 100.0, 250.0, 500.0)}
FEW = 3
"""Minimum number of objects for a statistic over objects; cells use the language's default."""
OF_LOOKS: dict[str, Statistic] = {
    "cellularity": "median",
    "lymphoid_share": "median",
    "nuclear_area": "median",
    "pleomorphism": "median",
    "epithelial_share": "median",
    "necrosis_share": "mean",
    "stroma_share": "mean",
    "gland_share": "mean",
    "tumor_share": "mean",
    "lymphoid_density": "max",
    "mitosis_like": "max",
}
"""Statistics for each of a reader's findings over the regions that it inspected.

They are the typical region, the share of the inspected tissue, and the hottest region. A
single region is enough, because each is measured on many nuclei; the gate decides on
values that depend on few regions.
"""


def enumerate_measurements(
    types: Sequence[str],
    objects: Sequence[str] = (),
    regions: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    suite: Suite = "full",
) -> list[Measurement]:
    """Enumerate a suite's measurements over these types, kinds and columns, in a fixed order.

    Parameters
    ----------
    objects, regions : kinds of objects and of regions
    columns : shape and stain measures of cells, with their units
    suite : "standard" uses a single radius and margin; "full" uses all of them, and every
        pair in regions

    Returns
    -------
    Uniquely named measurements, pooled over slides if possible, else averaged.
    """
    looks = [name for name in types if name.startswith(INSPECTED)]
    read = [name for name in objects if name.startswith(READ)]
    cells = [name for name in types if name not in looks]
    things = [name for name in objects if name not in read]
    found = [
        *(_of_cells(cells, regions, suite) if cells or not looks else ()),
        *_of_pairs(cells, regions, suite),
        *_of_columns(cells, regions, columns or {}, suite),
        *_of_looks(looks, columns or {}),
        *_of_read(read),
        *_of_objects(cells, things, regions, suite),
        *_of_regions(regions),
    ]
    made = [Measurement.model_validate({"rule": _rule(of), "of": of}) for of in found]
    return list({measurement.name: measurement for measurement in made}.values())


def _rule(of: Node) -> Rule:
    if poolable(of):
        return "pooled"
    return "max" if isinstance(of, nodes.CellColumn) and of.statistic == "max" else "mean"


def suite_of(slides: Iterable[Held], suite: Suite = "standard") -> list[Measurement]:
    """Return the suite for the combined contents of these maps."""
    every = list(slides)
    return enumerate_measurements(
        sorted({name for held in every for name in held.types}),
        sorted({name for held in every if held.objects for name in held.objects.kinds}),
        sorted({name for held in every if held.regions for name in held.regions.kinds}),
        dict(sorted((name, unit) for held in every for name, unit in held.columns.items())),
        suite,
    )


def _areas(regions: Sequence[str], suite: Suite) -> list[Area]:
    found: list[Area] = [TISSUE, *(Region(name=name) for name in regions)]
    for name in regions:
        for width in MARGINS[suite]:
            found.append(Margin(of=name, inside_um=width, outside_um=width))
            if suite == "full":
                found.append(Margin(of=name, inside_um=width, outside_um=0))
                found.append(Margin(of=name, inside_um=0, outside_um=width))
    return found


def _wide_areas(regions: Sequence[str], suite: Suite) -> list[Area]:
    """Return the areas in which to measure patterns and neighborhoods, excluding narrow margins."""
    return [TISSUE, *(Region(name=name) for name in regions if suite == "full")]


def _of_cells(types: Sequence[str], regions: Sequence[str], suite: Suite) -> Iterator[Node]:
    for area in _areas(regions, suite):
        yield nodes.Density(of=Cells(), within=area)
        for name in types:
            yield nodes.Density(of=Cells(type=name), within=area)
            yield nodes.Share(of=Cells(type=name), within=area)
    for name in types:
        cells = Cells(type=name)
        for region in regions:
            for width in MARGINS[suite]:
                yield nodes.Gradient(of=cells, region=region, reach_um=width)
                yield _inner_over_outer(cells, region, width)
            yield nodes.ToRegion(of=cells, region=region, statistic="median")
        for area in _wide_areas(regions, suite):
            yield nodes.Nearest(of=cells, to=cells, statistic="median", within=area)
            yield nodes.ClarkEvans(of=cells, within=area)
            for radius in CELL_RADII[suite]:
                yield nodes.Neighbors(of=cells, to=cells, radius_um=radius, within=area)
                yield nodes.NeighborEntropy(of=cells, radius_um=radius, within=area)
                yield nodes.NeighborShare(of=cells, to=cells, radius_um=radius, within=area)
                yield nodes.RipleyL(of=cells, radius_um=radius, within=area)
                yield nodes.PairCorrelation(
                    of=cells, radius_um=radius, halfwidth_um=radius / 3, within=area
                )
            for size in CELL_RADII[suite]:
                yield nodes.HotSpot(of=cells, bandwidth_um=size, within=area)
                yield nodes.HotWindow(of=cells, side_um=5 * size, within=area)
                yield nodes.Heterogeneity(of=cells, side_um=5 * size, index="cv", within=area)
                yield nodes.Heterogeneity(of=cells, side_um=5 * size, index="morisita", within=area)


def _inner_over_outer(cells: Cells, region: str, width: float) -> Node:
    """Return the log2 ratio of the density inside a border to the density outside it."""
    inner = Margin(of=region, inside_um=width, outside_um=0)
    outer = Margin(of=region, inside_um=0, outside_um=width)
    densities = (nodes.Density(of=cells, within=inner), nodes.Density(of=cells, within=outer))
    return Log2(of=Quotient(left=densities[0], operator="/", right=densities[1]))


def _of_pairs(types: Sequence[str], regions: Sequence[str], suite: Suite) -> Iterator[Node]:
    for first, second in permutations(types, 2):
        of, to = Cells(type=first), Cells(type=second)
        if first < second:
            for area in _areas(regions, suite):
                yield nodes.Ratio(of=of, to=to, within=area)
        for area in _wide_areas(regions, suite):
            yield nodes.Nearest(of=of, to=to, statistic="median", within=area)
            if suite == "full":
                yield nodes.Nearest(of=of, to=to, statistic="mean", within=area)
                yield nodes.Nearest(of=of, to=to, statistic="p90", within=area)
            for radius in CELL_RADII[suite]:
                yield nodes.ShareNear(of=of, to=to, radius_um=radius, within=area)
                yield nodes.Neighbors(of=of, to=to, radius_um=radius, within=area)
                yield nodes.NeighborShare(of=of, to=to, radius_um=radius, within=area)
                yield nodes.RipleyL(of=of, to=to, radius_um=radius, within=area)
                yield nodes.CrossG(of=of, to=to, radius_um=radius, within=area)
                if suite == "full":
                    half = radius / 3
                    yield nodes.PairCorrelation(
                        of=of, to=to, radius_um=radius, halfwidth_um=half, within=area
                    )


def _of_columns(
    types: Sequence[str], regions: Sequence[str], columns: Mapping[str, str], suite: Suite
) -> Iterator[Node]:
    statistics: list[Statistic] = ["mean", "sd"]
    statistics += ["cv", "p10", "p90"] if suite == "full" else []
    for area in _wide_areas(regions, "full"):
        for name in types:
            for column, unit in columns.items():
                for statistic in statistics:
                    yield nodes.CellColumn(
                        of=Cells(type=name), column=column, measured_in=unit,
                        statistic=statistic, within=area,
                    )  # fmt: skip


def _of_looks(looks: Sequence[str], columns: Mapping[str, str]) -> Iterator[Node]:
    """Yield measurements of a reader's findings over the regions that it inspected."""
    for name in looks:
        for column, statistic in OF_LOOKS.items():
            if column in columns:
                yield nodes.CellColumn(
                    of=Cells(type=name), column=column, measured_in=columns[column],
                    statistic=statistic, at_least=1,
                )  # fmt: skip


def _of_read(read: Sequence[str]) -> Iterator[Node]:
    """Yield the share of the target objects that a reader found."""
    for name in read:
        yield nodes.Density(of=Objects(type=name))


def _of_objects(
    types: Sequence[str], objects: Sequence[str], regions: Sequence[str], suite: Suite
) -> Iterator[Node]:
    for kind in objects:
        things = Objects(type=kind)
        for area in _areas(regions, suite):
            yield nodes.Count(of=things, within=area)
            yield nodes.Density(of=things, within=area)
        yield nodes.ObjectSize(of=things, statistic="mean")
        yield nodes.ObjectSize(of=things, statistic="max")
        yield Quotient(
            left=nodes.ObjectSize(of=things, statistic="total"),
            operator="/",
            right=nodes.Size(of=TISSUE),
        )
        yield nodes.Nearest(of=things, to=things, statistic="median", at_least=FEW)
        yield nodes.ClarkEvans(of=things, guard_um=0, at_least=FEW)
        for radius in OBJECT_RADII[suite]:
            yield nodes.Neighbors(of=things, to=things, radius_um=radius, at_least=FEW)
            yield nodes.RipleyL(of=things, radius_um=radius, at_least=FEW)
            yield nodes.HotSpot(of=things, bandwidth_um=radius, at_least=0)
            yield nodes.HotWindow(of=things, side_um=2 * radius, at_least=0)
            yield nodes.Heterogeneity(of=things, side_um=2 * radius, index="morisita", at_least=FEW)
        for other in objects:
            if other != kind:
                to = Objects(type=other)
                yield nodes.Ratio(of=things, to=to, at_least=FEW)
                yield nodes.Nearest(of=things, to=to, statistic="median", at_least=FEW)
                for radius in OBJECT_RADII[suite]:
                    yield nodes.ShareNear(of=things, to=to, radius_um=radius, at_least=FEW)
        for region in regions:
            yield nodes.ToRegion(of=things, region=region, statistic="median", at_least=FEW)
        for name in types:
            yield nodes.Nearest(of=Cells(type=name), to=things, statistic="median")
            for radius in MARGINS[suite]:
                yield nodes.ShareNear(of=Cells(type=name), to=things, radius_um=radius)


def _of_regions(regions: Sequence[str]) -> Iterator[Node]:
    for name in regions:
        yield nodes.Size(of=Region(name=name))
        yield Quotient(
            left=nodes.Size(of=Region(name=name)), operator="/", right=nodes.Size(of=TISSUE)
        )

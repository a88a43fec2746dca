"""Each kind of measurement beside a slow reference, and beside R's spatstat."""

from __future__ import annotations

import csv
from collections import defaultdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import shapely

from mcp_servers.measures.compute import Value, compute, of_patient
from mcp_servers.measures.formula import parse
from mcp_servers.measures.maps import (
    CellMap,
    Column,
    ObjectMap,
    RegionMap,
    SlideMaps,
    multipolygon,
    shape_map,
)
from tests.mcp_servers.measures import brute

R = Path(__file__).parent / "r"


@cache
def spatstat() -> dict[str, SlideMaps]:
    """The patterns that R made, by window."""
    with (R / "windows.csv").open() as stream:
        rings: dict[str, dict[str, list[tuple[float, float]]]] = defaultdict(
            lambda: defaultdict(list)
        )
        for row in csv.DictReader(stream):
            rings[row["window"]][row["ring"]].append((float(row["x"]), float(row["y"])))
    with (R / "points.csv").open() as stream:
        points = defaultdict(list)
        for row in csv.DictReader(stream):
            points[row["window"]].append((row["type"], float(row["x"]), float(row["y"])))
    found = {}
    for name, parts in rings.items():
        outer, *holes = parts.values()
        types, x, y = zip(*points[name], strict=True)
        codes = np.array(["ab".index(kind) for kind in types])
        cells = CellMap(np.array(x), np.array(y), ("a", "b"), codes)
        window = multipolygon([shapely.Polygon(outer, holes)])
        found[name] = SlideMaps(name, name, window=window, cells=cells)
    return found


def figures() -> list[tuple[str, str, float, float]]:
    with (R / "figures.csv").open() as stream:
        return [
            (row["window"], row["statistic"], float(row["radius"]), float(row["value"]))
            for row in csv.DictReader(stream)
        ]


FORMULAS = {
    "k": "ripley_k(cells.a, {r})",
    "l": "ripley_l(cells.a, {r})",
    "cross_k": "ripley_k(cells.a, {r}, to=cells.b)",
    "cross_g": "cross_g(cells.a, cells.b, {r}, at_least=1)",
    "ring": "pair_correlation(cells.a, {r}, 5)",
    "pcf": "pair_correlation(cells.a, {r}, 5)",
    "share_near": "share_near(cells.a, cells.b, {r})",
    "clark_evans": "clark_evans(cells.a, guard_um={r})",
    "area": 'area(tissue) * quantity(1000000, "1")',
    "mean_nearest": "nearest(cells.a, cells.a, mean)",
    "mean_nearest_other": "nearest(cells.a, cells.b, mean)",
    "median_nearest_other": "nearest(cells.a, cells.b, median)",
}
WITHIN = {"pcf": 0.15, "clark_evans": 0.01}
"""Relative difference allowed where R computes something near, not the same: another kernel and
correction (pcf), an eroded window of pixels (Clark and Evans with a guard)."""


@pytest.mark.parametrize(("window", "statistic", "radius", "expected"), figures())
def test_as_spatstat(window: str, statistic: str, radius: float, expected: float) -> None:
    measurement = parse(f"only({FORMULAS[statistic].format(r=int(radius))})")
    value = compute(measurement, spatstat()[window]).value
    assert value == pytest.approx(expected, rel=WITHIN.get(statistic, 1e-9))


def a_slide(seed: int, cells: int = 240, outside_card: tuple[str, ...] = ()) -> SlideMaps:
    """A window with a hole, a tumor that touches its edge, cells of three types, TLS."""
    rng = np.random.default_rng(seed)
    window = multipolygon([shapely.box(0, 0, 900, 700) - shapely.Point(600, 500).buffer(90)])
    tumor = shapely.box(-10, -10, 400, 420)
    xy = np.concatenate(
        [
            rng.uniform((-20, -20), (920, 720), (cells // 2, 2)),
            rng.normal((300, 300), 60, (cells - cells // 2, 2)),
        ]
    )
    homes = rng.uniform((0, 0), (900, 700), (12, 2))
    shapes = [shapely.Point(x, y).buffer(rng.uniform(10, 40)) for x, y in homes]
    return SlideMaps(
        slide=f"S{seed}",
        patient="P",
        window=window,
        cells=CellMap(
            xy[:, 0],
            xy[:, 1],
            ("a", "b", "none"),
            rng.integers(-1, 2, cells),
            None,
            {"area_um2": Column(np.where(rng.random(cells) < 0.1, np.nan, 40.0 + xy[:, 0]), "µm²")},
        ),
        objects=shape_map(ObjectMap, shapes, ["tls"] * 12, ["gland"]),
        regions=shape_map(RegionMap, [tumor], ["tumor"], ["necrosis"]),
        outside_card=outside_card,
    )


class Slow:
    """What a slow reader would take from the same maps."""

    def __init__(self, maps: SlideMaps) -> None:
        assert maps.cells is not None and maps.objects is not None and maps.regions is not None
        self.maps, self.window = maps, maps.window
        self.tumor = maps.regions.shapes[0].intersection(maps.window)
        kept = brute.inside(maps.window, maps.cells.points)
        self.xy, self.codes = maps.cells.points[kept], maps.cells.codes[kept]
        self.a, self.b = self.xy[self.codes == 0], self.xy[self.codes == 1]
        self.a_tumor = self.a[brute.inside(self.tumor, self.a)]
        self.area = maps.cells.columns["area_um2"].values[kept]
        self.tls = [s for s in maps.objects.shapes if self.window.intersects(s.centroid)]
        line = self.tumor.boundary.difference(self.window.boundary.buffer(1.0))
        self.line = line

    def distance_to_line(self, points: np.ndarray) -> np.ndarray:
        return np.array([self.line.distance(shapely.Point(x, y)) for x, y in points])

    def in_margin(self, points: np.ndarray, inner: float, outer: float) -> np.ndarray:
        far, within = self.distance_to_line(points), brute.inside(self.tumor, points)
        return np.where(within, far <= inner, far <= outer)

    def field_counts(self, side: float) -> tuple[np.ndarray, np.ndarray]:
        x0, y0, x1, y1 = self.window.bounds
        counts, areas = [], []
        for x in np.arange(x0, x1, side):
            for y in np.arange(y0, y1, side):
                area = shapely.box(x, y, x + side, y + side).intersection(self.window).area
                if area >= side**2 / 2:
                    inside = (self.a >= [x, y]).all(axis=1) & (self.a < [x + side, y + side]).all(1)
                    counts.append(inside.sum())
                    areas.append(area)
        return np.array(counts), np.array(areas)

    def neighbors(self, of: np.ndarray, to: np.ndarray, radius: float) -> np.ndarray:
        table = brute.distances(of, to)
        return ((table > 0) & (table <= radius)).sum(axis=1)

    def densest(self, side: float) -> float:
        best, step = 0, side / 2
        for x in np.arange(-side, 1000, step):
            for y in np.arange(-side, 1000, step):
                inside = (self.a >= [x, y]).all(axis=1) & (self.a < [x + side, y + side]).all(1)
                best = max(best, int(inside.sum()))
        return best / side**2 * 1e6

    def gradient(self, reach: float, bands: int) -> float:
        far, within = self.distance_to_line(self.a), brute.inside(self.tumor, self.a)
        signed = np.where(within, -far, far)
        step, rows = reach / bands, []
        for i in range(-bands, bands):
            low, high = i * step, (i + 1) * step
            # the area by a fine lattice, another way than by buffers
            side = self.lattice[(self.lattice_at > low) & (self.lattice_at <= high)]
            area = len(side) * 4 * 4 / 1e6
            count = ((signed > low) & (signed <= high)).sum()
            rows.append(((low + high) / 2000, count / area, area))
        at, density, area = np.array(rows).T
        slope = np.polynomial.polynomial.polyfit(at, density, 1, w=np.sqrt(area))[1]
        return float(slope)

    @property
    def lattice(self) -> np.ndarray:
        x, y = np.meshgrid(np.arange(2, 900, 4.0), np.arange(2, 700, 4.0))
        points = np.column_stack([x.ravel(), y.ravel()])
        return points[shapely.contains_xy(self.window, *points.T)]

    @property
    def lattice_at(self) -> np.ndarray:
        points = self.lattice
        far = shapely.distance(self.line, shapely.points(points))
        return np.where(shapely.contains_xy(self.tumor, *points.T), -far, far)


def spread(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1) / np.mean(values))


def object_distance(slow: Slow) -> np.ndarray:
    return np.array([min(s.distance(shapely.Point(p)) for s in slow.tls) for p in slow.a])


REFERENCES = {
    "count(cells.a)": lambda s: len(s.a),
    "count(objects.tls)": lambda s: len(s.tls),
    "count(cells.a, within=margin(regions.tumor, 50, 80))": lambda s: int(
        s.in_margin(s.a, 50, 80).sum()
    ),
    "area(regions.tumor)": lambda s: s.tumor.area / 1e6,
    "density(cells.a, within=regions.tumor)": lambda s: len(s.a_tumor) / s.tumor.area * 1e6,
    "density(objects.tls)": lambda s: len(s.tls) / s.window.area * 1e6,
    "share(cells.b)": lambda s: len(s.b) / len(s.xy),
    "ratio(cells.a, cells.b)": lambda s: len(s.a) / len(s.b),
    "nearest(cells.a, cells.b, p90)": lambda s: np.percentile(
        brute.distances(s.a, s.b).min(axis=1), 90
    ),
    "nearest(cells, cells.b, mean)": lambda s: (
        np.where((table := brute.distances(s.xy, s.b)) == 0, np.inf, table).min(axis=1).mean()
    ),
    "nearest(cells.a, cells.a, mean, within=regions.tumor)": lambda s: (
        np.where((table := brute.distances(s.a_tumor, s.a)) == 0, np.inf, table).min(axis=1).mean()
    ),
    "nearest(cells.a, objects.tls, median)": lambda s: np.median(object_distance(s)),
    "to_region(cells.a, tumor, mean)": lambda s: np.mean(
        [s.tumor.distance(shapely.Point(p)) for p in s.a]
    ),
    "share_near(cells.a, objects.tls, 30)": lambda s: (object_distance(s) <= 30).mean(),
    "neighbors(cells.a, cells, 40)": lambda s: s.neighbors(s.a, s.xy, 40).mean(),
    "neighbors(cells, cells.a, 40)": lambda s: s.neighbors(s.xy, s.a, 40).mean(),
    "neighbor_share(cells.a, cells.b, 40)": lambda s: np.mean(
        [
            b / n
            for b, n in zip(s.neighbors(s.a, s.b, 40), s.neighbors(s.a, s.xy, 40), strict=True)
            if n
        ]
    ),
    "neighbor_entropy(cells.a, 40)": lambda s: brute.entropy(
        s.a, s.xy[s.codes >= 0], list(s.codes[s.codes >= 0]), 40
    ),
    "neighbor_entropy(cells, 40)": lambda s: brute.entropy(
        s.xy, s.xy[s.codes >= 0], list(s.codes[s.codes >= 0]), 40
    ),
    "ripley_k(cells.a, 40)": lambda s: brute.k_border(s.a, s.a, s.window, 40, True),
    "ripley_k(cells.a, 40, within=regions.tumor)": lambda s: brute.k_border(
        s.a_tumor, s.a_tumor, s.tumor, 40, True
    ),
    'cell(cells.a, area_um2, "µm²", median)': lambda s: np.nanmedian(s.area[s.codes == 0]),
    'cell(cells.a, area_um2, "mm²", total)': lambda s: np.nansum(s.area[s.codes == 0]) / 1e6,
    'cell(cells.a, area_um2, "µm²", cv)': lambda s: spread(
        s.area[(s.codes == 0) & np.isfinite(s.area)]
    ),
    "size(objects.tls, mean)": lambda s: np.mean([shape.area for shape in s.tls]) / 1e6,
    "size(objects.tls, cv)": lambda s: spread(np.array([shape.area for shape in s.tls])),
    "hot_window(cells.a, 100)": lambda s: s.densest(100),
    "heterogeneity(cells.a, 120, cv)": lambda s: spread(np.divide(*s.field_counts(120))),
    "heterogeneity(cells.a, 120, morisita)": lambda s: (
        len(n := s.field_counts(120)[0]) * (n * (n - 1)).sum() / (n.sum() * (n.sum() - 1))
    ),
    "count(cells.a) / area(regions.tumor)": lambda s: len(s.a) / (s.tumor.area / 1e6),
    'nearest(cells.a, cells.b, mean) + quantity(1, "mm")': lambda s: (
        brute.distances(s.a, s.b).min(axis=1).mean() + 1000
    ),
    "log2(count(cells.a) / count(cells.b))": lambda s: np.log2(len(s.a) / len(s.b)),
    'density(cells.a) * quantity(30, "µm")': lambda s: len(s.a) / s.window.area * 1e6 * 0.03,
}
NEAR = {"count(cells.a, within=margin(regions.tumor, 50, 80))": 0.02}


@pytest.mark.parametrize("formula", REFERENCES)
@pytest.mark.parametrize("seed", [1, 2])
def test_as_a_slow_reference(formula: str, seed: int) -> None:
    maps = a_slide(seed)
    value = compute(parse(f"only({formula})"), maps).value
    expected = float(REFERENCES[formula](Slow(maps)))
    assert value == pytest.approx(expected, rel=NEAR.get(formula, 1e-9))


@pytest.mark.parametrize("seed", [1, 2])
def test_the_kernel_maximum_is_that_of_the_density(seed: int) -> None:
    maps = a_slide(seed, cells=400)
    slow = Slow(maps)
    x, y = np.meshgrid(np.arange(0, 900, 5.0), np.arange(0, 700, 5.0))
    lattice = np.column_stack([x.ravel(), y.ravel()])
    expected = brute.kernel_density(slow.a, lattice, 40).max() * 1e6
    found = compute(parse("only(hotspot(cells.a, 40))"), maps).value
    assert found == pytest.approx(expected, rel=0.03)


def test_the_gradient_is_the_slope_over_the_border() -> None:
    maps = a_slide(3, cells=800)
    found = compute(parse("only(gradient(cells.a, tumor, 120, bands=3))"), maps).value
    assert found == pytest.approx(Slow(maps).gradient(120, 3), rel=0.05)


@pytest.mark.parametrize(
    "formula",
    [
        "density(cells.a, within=regions.tumor)",
        "nearest(cells.a, objects.tls, mean)",
        "ripley_k(cells.a, 40)",
        "neighbor_entropy(cells.a, 40)",
        "cross_g(cells.a, cells.b, 40)",
        "gradient(cells.a, tumor, 120)",
        "heterogeneity(cells.a, 100, cv)",
    ],
)
def test_a_shifted_slide_measures_the_same(formula: str) -> None:
    maps, (dx, dy) = a_slide(4, cells=300), (-3517, 2999)
    assert maps.cells and maps.objects and maps.regions
    cells = CellMap(maps.cells.x_um + dx, maps.cells.y_um + dy, maps.cells.types, maps.cells.codes)

    def moved(shapes: object) -> np.ndarray:
        return shapely.transform(shapes, lambda xy: xy + np.array([dx, dy]))

    shifted = SlideMaps(
        "S",
        "P",
        window=moved(maps.window),
        cells=cells,
        objects=ObjectMap(moved(maps.objects.shapes), maps.objects.kinds, maps.objects.codes),
        regions=RegionMap(moved(maps.regions.shapes), maps.regions.kinds, maps.regions.codes),
    )
    measurement = parse(f"only({formula})")
    one, other = compute(measurement, maps).value, compute(measurement, shifted).value
    assert one == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize(
    ("formula", "maps", "reason"),
    [
        ("density(cells.a)", SlideMaps("S", "P"), "outline"),
        ("count(cells.a)", SlideMaps("S", "P"), "cell map"),
        ("count(cells.t_cell)", None, "T cells"),
        ("density(cells.a, within=regions.necrosis)", None, "necrosis"),
        ("nearest(cells.none, cells.a, mean)", None, "10 none cells"),
        ("nearest(cells.a, cells.none, mean)", None, "none cells"),
        ("ripley_k(cells.a, 340)", None, "340 µm"),
        ("heterogeneity(cells.a, 600, cv)", None, "4 fields"),
        ('cell(cells.a, area_um2, "µm", mean)', None, "µm²"),
        ('cell(cells.a, roundness, "1", mean)', None, "roundness"),
        ("log2(count(cells.none) / count(cells.a))", None, "logarithm"),
        ("count(cells.a) / count(cells.none)", None, "zero"),
        ("hotspot(cells.a, 0.01)", None, "spread"),
        ("heterogeneity(cells.a, 0.001, cv)", None, "1,000,000 fields"),
    ],
)
def test_what_cannot_be_measured_has_no_value_and_says_why(
    formula: str, maps: SlideMaps | None, reason: str
) -> None:
    value = compute(parse(f"mean({formula})"), maps or a_slide(1))
    assert value.value is None and not value.valid and reason in value.why_not
    patient = of_patient(parse(f"mean({formula})"), [value])
    assert patient.value is None and not patient.valid and reason in patient.why_not


def test_zero_is_a_value_where_zero_was_counted() -> None:
    for formula in (
        *("count(objects.gland)", "density(cells.none)", "share(cells.none)"),
        *("hot_window(objects.gland, 500, at_least=0)", "hotspot(cells.none, 50, at_least=0)"),
    ):
        assert compute(parse(f"mean({formula})"), a_slide(1)).value == 0


def one_value(value: float | None, area: float | None = None, valid: bool = True) -> Value:
    return Value(
        value=value,
        unit="1",
        valid=valid and value is not None,
        area_um2=area,
        why_not="" if value is not None and valid else "why",
    )


@pytest.mark.parametrize(
    ("rule", "values", "expected"),
    [
        ("mean", [1, 2, 6], 3),
        ("median", [1, 2, 6], 2),
        ("max", [1, None, 6], 6),
        ("min", [1, 2, 6], 1),
        ("only", [4], 4),
        ("only", [4, 5], None),
        ("mean", [None, None], None),
        ("mean", [], None),
    ],
)
def test_slides_become_a_patient_by_the_rule(
    rule: str, values: list[float | None], expected: float | None
) -> None:
    found = of_patient(parse(f"{rule}(count(cells))"), [one_value(value) for value in values])
    assert found.value == expected and found.valid == (expected is not None)
    assert found.value is not None or found.why_not


def test_slides_are_weighed_by_their_tissue() -> None:
    rule = parse("area_weighted(count(cells))")
    assert of_patient(rule, [one_value(1, 1.0), one_value(4, 3.0)]).value == 3.25
    unknown = of_patient(rule, [one_value(1, 1.0), one_value(4)])
    assert unknown.value is None and "outline" in unknown.why_not


def test_pooled_slides_are_one_large_slide() -> None:
    slides = [a_slide(seed, cells) for seed, cells in ((1, 40), (2, 400), (5, 6))]
    slow = [Slow(maps) for maps in slides]
    density = parse("pooled(density(cells.a))")
    pooled = of_patient(density, [compute(density, maps) for maps in slides]).value
    areas = sum(s.window.area for s in slow) / 1e6
    assert pooled == pytest.approx(sum(len(s.a) for s in slow) / areas)
    rule = parse("pooled(share(cells.a, at_least=100))")
    share = of_patient(rule, [compute(rule, maps) for maps in slides]).value
    assert share == pytest.approx(sum(len(s.a) for s in slow) / sum(len(s.xy) for s in slow))
    assert compute(rule, slides[0]).value is None


def test_a_slide_outside_the_card_gives_a_value_that_is_not_valid() -> None:
    outside = a_slide(1, outside_card=("stain outside the card",))
    rule = parse("mean(count(cells.a))")
    value = of_patient(rule, [compute(rule, maps) for maps in (a_slide(2), outside)])
    assert value.value is not None and not value.valid and "stain" in value.why_not


@pytest.mark.parametrize("formula", ["count(objects.tls)", "density(objects.tls)"])
@pytest.mark.parametrize(("side", "valid"), [(490.0, False), (510.0, True)])
def test_no_structure_on_a_sliver_of_tissue_is_no_finding(
    formula: str, side: float, valid: bool
) -> None:
    maps = SlideMaps(
        slide="s",
        patient="p",
        window=multipolygon([shapely.box(0, 0, side, side)]),
        objects=shape_map(ObjectMap, [], [], ["tls"]),
    )
    found = compute(parse(f"mean({formula})"), maps)
    assert found.valid is valid
    assert found.value == 0 if valid else "0.25 mm²" in found.why_not

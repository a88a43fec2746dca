"""Computation of measurements on maps: per slide, then per patient.

A quantity that cannot be measured has a reason instead of a value; zero means that none
were found.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mcp_servers.lazy import shapely
from mcp_servers.measures import nodes, patterns
from mcp_servers.measures.language import Arithmetic, Code, Log2, Measurement, Quantity, poolable
from mcp_servers.measures.maps import SlideMaps
from mcp_servers.measures.nodes import Node
from mcp_servers.measures.places import TISSUE, Cells, Objects, Points
from mcp_servers.measures.prepared import Prepared, Undefined
from mcp_servers.measures.units import Unit, read_unit
from mcp_servers.slides.arrays import F64, I64
from sage.core.models import Strict

LEAST_AREA_MM2 = 0.01
"""Smallest tissue area in which a density is defined."""
LEAST_TISSUE_MM2 = 0.25
"""Tissue area on a slide below which TLS and germinal centers are not counted.

This is about the area of a tissue microarray core, and a few times that of an aggregate.
"""
LEAST_FIELDS = 4
UM2_PER_MM2 = 1e6
Patterned = nodes.RipleyK | nodes.RipleyL | nodes.PairCorrelation | nodes.ClarkEvans | nodes.CrossG


class Value(Strict):
    """A measurement's value on a slide or in a patient.

    `value` is None if undefined; it is not `valid` if it is undefined, or if a slide is
    outside the card of the tool that made its maps. `why_not` gives the reason. `numerator`
    and `denominator` are summed by `pooled`; `area_um2` weights slides; `slides` counts those
    on which the value is based.
    """

    value: float | None
    unit: str
    valid: bool
    why_not: str = ""
    numerator: float | None = None
    denominator: float | None = None
    area_um2: float | None = None
    slides: int = 1


def compute(measurement: Measurement, maps: SlideMaps | Prepared) -> Value:
    """Compute a measurement on a slide; `Prepared` maps speed up further measurements."""
    slide = maps if isinstance(maps, Prepared) else Prepared(maps)
    expression = measurement.of
    numerator = denominator = None
    value, why_not = None, ""
    try:
        if poolable(expression):
            numerator, denominator = _parts(expression, slide)
        value = _value(expression, slide)
        if not np.isfinite(value):
            value, why_not = None, "the value is not finite"
    except Undefined as reason:
        why_not = str(reason)
    outside = "; ".join(slide.maps.outside_card)
    return Value(
        value=value,
        unit=measurement.unit,
        valid=value is not None and not outside,
        why_not=why_not or outside,
        numerator=numerator,
        denominator=denominator,
        area_um2=slide.maps.area_um2,
        slides=int(value is not None),
    )


def of_patient(measurement: Measurement, slides: Sequence[Value]) -> Value:
    """Combine the values of a patient's slides using the measurement's rule.

    The `pooled` rule omits slides without counts, and the other rules omit slides without a
    value; `only` rejects more than one slide.
    """
    kept = [
        slide
        for slide in slides
        if (slide.value if measurement.rule != "pooled" else slide.numerator) is not None
    ]
    reasons = list(dict.fromkeys(slide.why_not for slide in slides if slide.why_not))
    value = None
    try:
        if not slides:
            raise Undefined("the patient has no slides")
        if measurement.rule == "only" and len(slides) > 1:
            raise Undefined(
                f"the patient has {len(slides)} slides, but the rule requires exactly one"
            )
        if not kept:
            raise Undefined("; ".join(reasons))
        value = _by_rule(measurement, kept)
        reasons = list(dict.fromkeys(s.why_not for s in kept if s.value is not None and s.why_not))
    except Undefined as reason:
        reasons = [str(reason)]
    areas = [slide.area_um2 for slide in kept if slide.area_um2 is not None]
    return Value(
        value=value,
        unit=measurement.unit,
        valid=value is not None and all(slide.valid for slide in kept if slide.value is not None),
        why_not="; ".join(reasons),
        area_um2=sum(areas) if areas and len(areas) == len(kept) else None,
        slides=len(kept) if value is not None else 0,
    )


def _by_rule(measurement: Measurement, slides: Sequence[Value]) -> float:
    if measurement.rule == "pooled":
        numerator = sum(slide.numerator or 0.0 for slide in slides)
        shares = [slide.denominator for slide in slides if slide.denominator is not None]
        return _quotient(measurement.of, numerator, sum(shares) if shares else None)
    values = np.array([slide.value for slide in slides], dtype=np.float64)
    if measurement.rule == "area_weighted":
        areas = [slide.area_um2 for slide in slides if slide.area_um2 is not None]
        if len(areas) < len(slides):
            raise Undefined("the tissue outline is unknown")
        return float(np.average(values, weights=areas))
    if measurement.rule == "min":
        return float(values.min())
    return _statistic(values, "mean" if measurement.rule == "only" else measurement.rule)


def _quotient(node: Node, numerator: float, denominator: float | None) -> float:
    """Divide numerator by denominator if the denominator is large enough."""
    if denominator is None:
        return numerator
    if isinstance(node, nodes.Density):
        if denominator < LEAST_AREA_MM2:
            raise Undefined(f"less than {LEAST_AREA_MM2:g} mm² of {node.within.words}")
    elif isinstance(node, nodes.Share | nodes.Ratio | nodes.ShareNear | nodes.Neighbors):
        base: Points = node.to if isinstance(node, nodes.Ratio) else node.of
        if isinstance(node, nodes.Share):
            base = Cells()
        _require(denominator, node.at_least, f"{base.plural} {node.where}")
    elif denominator == 0:
        raise Undefined("division by zero")
    return numerator / denominator


def _require(found: float, least: int, what: str) -> None:
    if found < least:
        raise Undefined(f"no {what}" if least == 1 else f"fewer than {least} {what}")


def _value(node: Node, slide: Prepared) -> float:
    """Compute the value of an expression in its own unit."""
    if poolable(node) and not isinstance(node, Arithmetic):
        return _quotient(node, *_parts(node, slide))
    return _compute(node, slide)


def _require_tissue(of: Points, slide: Prepared) -> None:
    """Raise an error for counts on too little tissue, where finding none is uninformative."""
    area = slide.maps.area_um2
    if isinstance(of, Objects) and area is not None and area < LEAST_TISSUE_MM2 * UM2_PER_MM2:
        raise Undefined(
            f"less than {LEAST_TISSUE_MM2:g} mm² of tissue, which is too little for {of.plural}"
        )


def _parts(node: Node, slide: Prepared) -> tuple[float, float | None]:
    """Return numerator and denominator, in units that give the value in its own unit.

    The denominator is None if the value is a sum.
    """
    match node:
        case nodes.Count():
            _require_tissue(node.of, slide)
            if node.within != TISSUE:
                slide.area(node.within)
            return float(len(slide.points(node.of, node.within))), None
        case nodes.Size():
            return float(slide.area(node.of).area) / UM2_PER_MM2, None
        case nodes.Density():
            _require_tissue(node.of, slide)
            area = float(slide.area(node.within).area) / UM2_PER_MM2
            return float(len(slide.points(node.of, node.within))), area
        case nodes.Share() | nodes.Ratio():
            among = node.to if isinstance(node, nodes.Ratio) else Cells()
            counts = [len(slide.points(points, node.within)) for points in (node.of, among)]
            return float(counts[0]), float(counts[1])
        case nodes.ShareNear():
            slide.points(node.to, None)
            nearest = slide.nearest(node.of, node.to, node.within)
            return float((nearest <= node.radius_um).sum()), float(len(nearest))
        case nodes.Neighbors():
            near = slide.counts(node.of, node.to, node.radius_um, node.within)
            return float(near.sum()), float(len(near))
        case nodes.ObjectSize():
            return _compute(node, slide), None
        case Arithmetic():
            scale = node.unit.per(_ratio_unit(node))
            return _parts(node.left, slide)[0] * scale, _parts(node.right, slide)[0]
    raise TypeError(f"{node.kind} has no numerator and denominator")


def _compute(node: Node, slide: Prepared) -> float:
    """Compute the value of an expression that is not a quotient of sums over slides."""
    match node:
        case Quantity():
            return node.value
        case Code():
            value = slide.maps.coded.get(node.program, f"the program {node.name} was not run")
            if isinstance(value, str):
                raise Undefined(value)
            return value
        case Log2():
            value = _value(node.of, slide) * read_unit("1").per(node.of.unit)
            if value <= 0:
                raise Undefined(f"the logarithm of {value:g} is undefined")
            return float(np.log2(value))
        case Arithmetic():
            return _combine(node, _value(node.left, slide), _value(node.right, slide))
        case nodes.Nearest():
            distances = slide.nearest(node.of, node.to, node.within)
            _require(len(distances), node.at_least, f"{node.of.plural} {node.where}")
            if not np.isfinite(distances).all():
                raise Undefined(f"no {node.to.plural} on this slide")
            return _statistic(distances, node.statistic)
        case nodes.ToRegion():
            region, points = slide.region(node.region), slide.points(node.of, node.within)
            _require(len(points), node.at_least, f"{node.of.plural} {node.where}")
            return _statistic(patterns.distances_to(region, points), node.statistic)
        case nodes.NeighborShare():
            near = slide.counts(node.of, Cells(), node.radius_um, node.within)
            of_type = slide.counts(node.of, node.to, node.radius_um, node.within)
            return _mean_around(node, of_type[near > 0] / near[near > 0])
        case nodes.NeighborEntropy():
            types = [Cells(type=name) for name in slide.cells.types]
            of_types = [slide.counts(node.of, to, node.radius_um, node.within) for to in types]
            entropy = patterns.entropy_bits(np.stack(of_types, axis=1))
            return _mean_around(node, entropy[np.isfinite(entropy)])
        case nodes.RipleyK():
            return patterns.ripley_k(*_counts(node, slide, node.radius_um, node.radius_um))
        case nodes.RipleyL():
            k = patterns.ripley_k(*_counts(node, slide, node.radius_um, node.radius_um))
            return float(np.sqrt(k / np.pi))
        case nodes.PairCorrelation():
            radius, half = node.radius_um, node.halfwidth_um
            outer, density = _counts(node, slide, radius + half, radius + half)
            inner, _ = _counts(node, slide, radius - half, radius + half)
            return patterns.pair_correlation(outer, inner, density, radius, half)
        case nodes.ClarkEvans():
            area = float(slide.area(node.within).area)
            distances = slide.nearest(node.of, node.of, node.within, node.within)
            far = distances[slide.far(node.of, node.within, node.guard_um)]
            far = far[np.isfinite(far)]
            _require_far(node, len(far), node.guard_um)
            return patterns.clark_evans(far, len(distances) / area)
        case nodes.CrossG():
            distances = slide.nearest(node.of, node.to, node.within, node.within)
            far = distances[slide.far(node.of, node.within, node.radius_um)]
            _require_far(node, len(far), node.radius_um)
            return float((far <= node.radius_um).mean())
        case nodes.Gradient():
            return _gradient(node, slide)
        case nodes.CellColumn():
            return _statistic(_column(node, slide), node.statistic)
        case nodes.ObjectSize():
            sizes = _sizes(node, slide)
            if node.statistic == "total":
                return float(sizes.sum()) / UM2_PER_MM2
            _require(len(sizes), node.at_least, f"{node.of.plural} {node.where}")
            return _statistic(sizes, node.statistic) / (
                1.0 if node.statistic == "cv" else UM2_PER_MM2
            )
        case nodes.HotSpot() | nodes.HotWindow():
            points = slide.points(node.of, node.within)
            _require(len(points), node.at_least, f"{node.of.plural} {node.where}")
            if not len(points):
                return 0.0
            try:
                if isinstance(node, nodes.HotSpot):
                    return patterns.kernel_maximum(points, node.bandwidth_um) * UM2_PER_MM2
                return patterns.densest_window(points, node.side_um) * UM2_PER_MM2
            except ValueError as error:
                raise Undefined(str(error)) from None
        case nodes.Heterogeneity():
            corners, covered = slide.fields(node.within, node.side_um)
            if len(corners) < LEAST_FIELDS:
                fields = f"fields of {node.side_um:g} µm {node.where}"
                raise Undefined(f"fewer than {LEAST_FIELDS} {fields}")
            points = slide.points(node.of, node.within)
            counts = patterns.field_counts(points, corners, node.side_um)
            _require(
                int(counts.sum()), node.at_least, f"{node.of.plural} in the fields {node.where}"
            )
            if node.index == "morisita":
                return patterns.morisita(counts)
            return _statistic(counts / covered, "cv")
    raise TypeError(f"{node.kind} cannot be computed")


def _combine(node: Arithmetic, left: float, right: float) -> float:
    if node.operator in "+-":
        right *= node.left.unit.per(node.right.unit)
        return left + right if node.operator == "+" else left - right
    scale = node.unit.per(_ratio_unit(node))
    if node.operator == "*":
        return left * right * scale
    if right == 0:
        raise Undefined("division by zero")
    return left / right * scale


def _ratio_unit(node: Arithmetic) -> Unit:
    """Return the unit of a product or quotient of two operands, without unit conversion."""
    left, right = node.left.unit, node.right.unit
    sign = 1 if node.operator == "*" else -1
    return Unit(node.unit.powers, left.scale * right.scale**sign)


def _mean_around(node: nodes.NeighborShare | nodes.NeighborEntropy, values: F64) -> float:
    """Return the mean over the cells that have neighbors."""
    what = f"{node.of.plural} {node.where} with cells within {node.radius_um:g} µm"
    _require(len(values), node.at_least, what)
    return float(values.mean())


def _require_far(node: Patterned, found: int, far_um: float) -> None:
    what = f"{node.of.plural} {node.where} farther than {far_um:g} µm from its border"
    _require(found, node.at_least, what)


def _counts(
    node: nodes.RipleyK | nodes.RipleyL | nodes.PairCorrelation,
    slide: Prepared,
    radius_um: float,
    far_um: float,
) -> tuple[I64, float]:
    """Count neighbors within a radius of each point that is far from the border.

    Also return the density of the neighbors per µm².
    """
    to = node.to or node.of
    area = float(slide.area(node.within).area)
    counts = slide.counts(node.of, to, radius_um, node.within, node.within)
    counts = counts[slide.far(node.of, node.within, far_um)]
    _require_far(node, len(counts), far_um)
    neighbors = len(slide.points(to, node.within))
    _require(neighbors, node.at_least, f"{to.plural} {node.where}")
    return counts, neighbors / area


def _gradient(node: nodes.Gradient, slide: Prepared) -> float:
    edges = np.linspace(-node.reach_um, node.reach_um, 2 * node.bands + 1)
    points = slide.points(node.of, None)
    middles, densities, areas, total = [], [], [], 0
    for middle, band in slide.bands(node.region, tuple(edges.tolist())):
        area = band.area / UM2_PER_MM2
        if area < LEAST_AREA_MM2:
            continue
        shapely.prepare(band)
        count = int(shapely.intersects_xy(band, points[:, 0], points[:, 1]).sum())
        total += count
        middles.append(middle / 1000)
        densities.append(count / area)
        areas.append(area)
    if len(middles) < LEAST_FIELDS:
        raise Undefined(f"fewer than {LEAST_FIELDS} bands contain {LEAST_AREA_MM2:g} mm² of tissue")
    _require(total, node.at_least, f"{node.of.plural} within {node.reach_um:g} µm of the border")
    return patterns.weighted_slope(np.array(middles), np.array(densities), np.array(areas))


def _column(node: nodes.CellColumn, slide: Prepared) -> F64:
    column = slide.cells.columns.get(node.column)
    if column is None:
        raise Undefined(f"the cell map has no column {node.column}")
    measured, wanted = read_unit(column.unit), read_unit(node.measured_in)
    if not measured.fits(wanted):
        raise Undefined(f"column {node.column} is in {column.unit}, not {node.measured_in}")
    values = column.values[slide.chosen(node.of, node.within)]
    values = values[np.isfinite(values)] * wanted.per(measured)
    _require(len(values), node.at_least, f"{node.of.plural} {node.where} with {node.column}")
    return values


def _sizes(node: nodes.ObjectSize, slide: Prepared) -> F64:
    shapes = slide.shapes(node.of, node.within)
    if np.isin(shapely.get_type_id(shapes), [shapely.GeometryType.POINT]).any():
        raise Undefined(f"only the positions of {node.of.plural} are known, not their outlines")
    return np.asarray(shapely.area(shapes))


def _statistic(values: F64, name: str) -> float:
    """Compute a statistic by name; "sd" and "cv" divide by n - 1."""
    if name in ("sd", "cv"):
        if len(values) < 2:
            raise Undefined("a measure of spread requires at least two values")
        spread = float(values.std(ddof=1))
        if name == "sd":
            return spread
        if values.mean() == 0:
            raise Undefined("a coefficient of variation requires a nonzero mean")
        return spread / float(values.mean())
    if name in ("p10", "p90"):
        return float(np.percentile(values, int(name[1:])))
    if name == "median":
        return float(np.median(values))
    if name == "max":
        return float(values.max())
    return float(values.mean() if name == "mean" else values.sum())

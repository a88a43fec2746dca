"""The language: what is written is read again, units are checked, sentences can be read."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from mcp_servers.measures import language, nodes, places
from mcp_servers.measures.formula import KINDS, parse
from mcp_servers.measures.language import Expression, Measurement
from mcp_servers.measures.units import read_unit
from sage.core.errors import InputError

NAMES = st.sampled_from(["b_cell", "neoplastic", "tls", "tumor", "x9"])
CELLS = st.builds(places.Cells, type=st.none() | NAMES)
TYPED = st.builds(places.Cells, type=NAMES)
OBJECTS = st.builds(places.Objects, type=NAMES)
POINTS = CELLS | OBJECTS
LENGTHS = st.sampled_from([0.5, 15, 20.25, 100, 1e-3, 1 / 3, 9999])
AREAS = (
    st.just(places.TISSUE)
    | st.builds(places.Region, name=NAMES)
    | st.builds(places.Margin, of=NAMES, inside_um=LENGTHS, outside_um=st.just(0) | LENGTHS)
)
UNITS = st.sampled_from(["1", "µm", "µm²", "OD", "1/mm²", "OD/µm²", "bits"])
FIELDS = {
    "within": AREAS,
    "at_least": st.integers(1, 100),
    "radius_um": st.just(9999.0),
    "halfwidth_um": LENGTHS,
    "side_um": LENGTHS.filter(lambda length: length >= 10),
    "bandwidth_um": LENGTHS,
    "reach_um": LENGTHS,
    "guard_um": LENGTHS,
    "region": NAMES,
    "column": NAMES,
    "measured_in": UNITS,
    "value": st.floats(-1e6, 1e6),
    "bands": st.integers(2, 9),
    "index": st.sampled_from(["cv", "morisita"]),
}


def strategy(kind: str) -> st.SearchStrategy[nodes.Node]:
    node = KINDS[kind]
    fields = {name: FIELDS[name] for name in node.model_fields if name in FIELDS}
    names = node.model_fields
    if "of" in names:
        text = str(names["of"].annotation)
        own = TYPED if kind == "share" else OBJECTS if kind == "size" else POINTS
        fields["of"] = AREAS if kind == "area" else own if "Objects" in text else CELLS
        if kind == "share":
            fields["of"] = TYPED
    if "to" in names:
        optional = not names["to"].is_required()
        both = CELLS if kind == "neighbor_share" else POINTS
        fields["to"] = st.none() | both if optional else both
    if "statistic" in names:
        few = kind in ("nearest", "to_region")
        fields["statistic"] = st.sampled_from(["median", "p90"] if few else ["sd", "cv", "max"])
    return st.builds(node, **fields)


OTHERS = ("log2", "quantity", "code")
"""What is made of others, or of a program's file."""
LEAVES = st.one_of([strategy(kind) for kind in KINDS if kind not in OTHERS])


@st.composite
def expressions(draw: st.DrawFn, depth: int = 2) -> nodes.Node:
    shape = draw(st.sampled_from(["leaf", "log", "+", "-", "*", "/"])) if depth else "leaf"
    if shape == "leaf":
        return draw(LEAVES)
    left = draw(expressions(depth=depth - 1))
    if shape == "log":
        ratio = language.Arithmetic(left=left, operator="/", right=left)
        return language.Log2(of=ratio)
    right = left if shape in "+-" else draw(expressions(depth=depth - 1) | strategy("quantity"))
    return language.Arithmetic(left=left, operator=shape, right=right)


RULES = st.sampled_from(["mean", "max", "area_weighted", "only"])


@settings(max_examples=200, deadline=None)
@given(of=expressions(), rule=RULES)
def test_a_measurement_is_read_from_its_formula_and_from_its_json(
    of: nodes.Node, rule: language.Rule
) -> None:
    made = Measurement(rule=rule, of=of)
    assert parse(made.formula) == made
    assert Measurement.model_validate_json(made.model_dump_json()) == made
    assert str(read_unit(made.unit)) == made.unit
    assert made.sentence.endswith(".") and "_" not in made.sentence


@settings(max_examples=150, deadline=None)
@given(one=expressions(depth=1), other=expressions(depth=1))
def test_measurements_share_a_name_only_when_they_are_the_same(
    one: nodes.Node, other: nodes.Node
) -> None:
    first, second = (Measurement(rule="mean", of=of) for of in (one, other))
    assert (first.name == second.name) == (first.formula == second.formula)


@pytest.mark.parametrize(
    ("formula", "unit"),
    [
        ("pooled(density(cells.lymphoid, within=regions.tumor))", "1/mm²"),
        ("mean(nearest(cells.b_cell, cells.neoplastic, median, within=regions.stroma))", "µm"),
        (
            "pooled(count(cells.cd8_t_cell, within=margin(regions.tumor, 100, 100))"
            " / area(margin(regions.tumor, 100, 100)))",
            "1/mm²",
        ),
        ('only(ripley_l(cells.b_cell, 50, to=cells.t_cell) - quantity(50, "µm"))', "µm"),
        ('mean(cell(cells.neoplastic, area_um2, "µm²", p90, within=regions.tumor))', "µm²"),
    ],
)
def test_formulas_have_their_unit(formula: str, unit: str) -> None:
    made = parse(formula)
    assert (made.formula, made.unit) == (formula, unit)


@pytest.mark.parametrize(
    ("formula", "named"),
    [
        ("density(cells.a)", "rule"),
        ("mean(density(cells.a) + nearest(cells.a, cells.b, mean))", "1/mm².* µm"),
        ("mean(log2(density(cells.a)))", "log2"),
        ("pooled(ripley_k(cells.a, 50))", "pooled"),
        ("pooled(density(cells.a) / density(cells.b))", "pooled"),
        ("mean(share(cells))", "type"),
        ("mean(share(objects.tls))", "share, of"),
        ("mean(nothing(cells))", "nothing"),
        ("mean(density())", "of"),
        ("mean(density(cells, cells))", "arguments"),
        ("mean(density(cells, radius_um=3))", "radius_um"),
        ("mean(ripley_k(cells.a, -5))", "radius_um"),
        ("mean(ripley_k(cells.a, 1e999))", "radius_um"),
        ("mean(pair_correlation(cells.a, 5, 10))", "exceed"),
        ("mean(density(cells, within=margin(regions.tumor, 0, 0)))", "width"),
        ("mean(count(cells) + True)", ""),
        ('mean(quantity(3, "fur-long"))', "fur-long"),
        ("mean(__import__('os').system('true'))", ""),
        ("mean(" * 200 + "1" + ")" * 200, ""),
        ("mean(" + "+".join(["count(cells)"] * 60) + ")", ""),
        ("mean(density(cells.lambda))", "lambda"),
        ("max(hot_window(cells, 9.9))", "10"),
        ("", ""),
    ],
)
def test_what_is_no_measurement_is_refused_with_a_reason(formula: str, named: str) -> None:
    with pytest.raises(InputError, match=named or None):
        parse(formula)


def test_json_of_a_model_is_checked_as_strictly() -> None:
    adapter = TypeAdapter(Expression)
    for wrong in (
        {"kind": "density", "of": {"source": "cells"}, "surprise": 1},
        {"kind": "density"},
        {"kind": "made_up"},
        {"kind": "density", "of": {"source": "cells", "type": "class"}},
    ):
        with pytest.raises(ValidationError):
            adapter.validate_python(wrong)


@pytest.mark.parametrize(
    ("one", "other", "product", "quotient"),
    [
        ("1/mm²", "mm²", "1", "1/mm⁴"),
        ("µm", "µm", "mm²", "1"),
        ("1", "mm²", "mm²", "1/mm²"),
        ("OD", "µm²", "OD·mm²", "OD/mm²"),
        ("1/mm²", "µm", "1/mm", "1/mm³"),
    ],
)
def test_units_multiply_and_divide(one: str, other: str, product: str, quotient: str) -> None:
    left, right = read_unit(one), read_unit(other)
    assert str(left * right) == product
    assert str(left / right) == quotient
    assert read_unit("mm²").per(read_unit("µm²")) == pytest.approx(1e-6)

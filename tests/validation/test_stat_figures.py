"""Figures: the same bytes every time, the right numbers on them, and a label on simulated data."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from html import unescape

import numpy as np
import pytest

from benchmarks.simulate.samples import competing_sample, survival_sample
from sage.core.errors import InputError
from validation.controls.curve import Specification, SpecificationCurve
from validation.figures.cumulative_incidence import Incidences, cumulative_incidence_figure
from validation.figures.curves import at_risk
from validation.figures.forest_plot import ForestRow, forest
from validation.figures.kaplan_meier import kaplan_meier_figure
from validation.figures.specification_plot import specification_curve_figure
from validation.figures.spline_plot import spline_figure
from validation.statistics.competing import aalen_johansen
from validation.statistics.survival import kaplan_meier, numbers_at_risk


def curves():
    s = survival_sample(120, [0.8], seed=2, prevalence=0.5)
    time, group = s.time * 20, s.X[:, 0] > 0
    return {
        "high": kaplan_meier(time[group], s.event[group]),
        "low": kaplan_meier(time[~group], s.event[~group]),
    }, (time, s.event, group)


def incidences(n=200):
    s = competing_sample(n, 0.7, seed=2)
    return {
        name: Incidences(
            *(aalen_johansen(s.time[here] * 20, s.status[here], cause) for cause in (1, 2))
        )
        for name, here in (("high", s.X[:, 0] == 1), ("low", s.X[:, 0] == 0))
    }


def draw(kind, path, **options):
    if kind == "km":
        return kaplan_meier_figure(
            curves()[0], path, time_unit="months", title="Survival by group", **options
        )
    if kind == "incidence":
        return cumulative_incidence_figure(
            incidences(), path, time_unit="months", title="Incidence by group", **options
        )
    if kind == "forest":
        rows = [
            ForestRow("Overall survival", heading=True),
            ForestRow("High vs low", 2.1, 1.3, 3.4, 0.002, "60 / 120", primary=True),
            ForestRow("Low grade", reason="no events in one group"),
            ForestRow("Wide", 1.5, 0.01, 90.0, 0.6),
        ]
        return forest(rows, path, title="Cox model", **options)
    if kind == "spline":
        grid = np.linspace(-2, 2, 50)
        ratio = np.exp(0.4 * grid**2)
        values = np.random.default_rng(1).normal(size=2000)
        return spline_figure(
            grid, (ratio, ratio / 1.3, ratio * 1.3), values, path, exposure="Marker (units)",
            reference=0.0, knots=(-1.5, 0, 1.5), title="Survival", **options,
        )  # fmt: skip
    return specification_curve_figure(
        curve_of("none", "adjusted"), path, title="Specifications", **options
    )


def curve_of(*covariates: str, reason: str = "") -> SpecificationCurve:
    """Estimates under two cuts and some sets of covariates; the last has none if a reason is."""
    places = [(cut, adjust) for cut in ("median", "continuous") for adjust in covariates]
    estimates = [
        Specification(
            {"cut-point": cut, "covariates": adjust}, 1.4 + at / 7, 0.9, 2.0, 0.1 / (at + 1),
            150, 80, reason if place == places[-1] else "",
        )
        for at, place in enumerate(places)
        for cut, adjust in [place]
    ]  # fmt: skip
    return SpecificationCurve.of(estimates, 0.05)


KINDS = ["km", "incidence", "forest", "specification", "spline"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_figure_is_the_same_file_again_and_labels_simulated_data_in_red(kind, tmp_path):
    """SVG well formed, titled and without a date; PNG with 200 dots per inch."""
    from PIL import Image

    def red(path):
        pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
        return int((np.abs(pixels - [0xB0, 0x00, 0x20]).sum(axis=2) < 12).sum())

    first, second = (draw(kind, tmp_path / f"{name}.svg") for name in "ab")
    assert first.read_bytes() == second.read_bytes()
    draw(kind, tmp_path / "a.png")
    text = (tmp_path / "a.svg").read_text(encoding="utf-8")
    assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "<dc:title>" in text and "<dc:date>" not in text
    with Image.open(tmp_path / "a.png") as image:
        assert round(image.info["dpi"][0]) == 200
        assert image.width > 800
    assert red(tmp_path / "a.png") == 0
    assert red(draw(kind, tmp_path / "simulated.png", simulated=True)) > 2_000


def test_numbers_under_the_curve_are_the_patients_still_followed():
    both, (time, _, group) = curves()
    when = np.array([0.0, 3.0, 10.0, 500.0])
    np.testing.assert_array_equal(at_risk(both["high"], when), numbers_at_risk(time[group], when))


def test_figures_refuse_what_they_cannot_draw(tmp_path):
    with pytest.raises(InputError, match="curve"):
        kaplan_meier_figure({}, tmp_path / "a.svg", time_unit="days", title="x")
    with pytest.raises(InputError, match="row"):
        forest([], tmp_path / "a.svg", title="x")
    with pytest.raises(InputError, match=r"\.svg or \.png"):
        draw("km", tmp_path / "a.pdf")
    curve = SpecificationCurve((), 0.05)
    with pytest.raises(InputError, match="specification"):
        specification_curve_figure(curve, tmp_path / "a.svg", title="x")
    assert list(tmp_path.iterdir()) == []


def svg_words(path):
    """What a figure says: its texts, kept as comments beside their paths."""
    found = re.findall(r"<!-- (.*?) -->", path.read_text(encoding="utf-8"))
    return [unescape(item) for item in found]


def test_small_counts_are_not_drawn_where_they_may_not_be_told(tmp_path):
    path = draw("incidence", tmp_path / "a.svg", smallest=5, until=49.0)
    words = svg_words(path)
    assert "<5" in words
    assert not {"1", "2", "3", "4"} & set(words)
    assert {"1", "2", "3", "4"} & set(svg_words(draw("incidence", tmp_path / "b.svg", until=49.0)))


@pytest.mark.parametrize(
    ("measure", "p"), [("Subdistribution hazard ratio", 0.2), ("Odds ratio", None)]
)
def test_the_columns_of_a_forest_never_meet(measure, p, tmp_path, monkeypatch):

    boxes = []

    def keep(figure, path, **said):
        drawer = figure.canvas.get_renderer()
        boxes.extend((text.get_text(), text.get_window_extent(drawer)) for text in figure.texts)
        boxes.append(("axes", figure.axes[0].get_window_extent(drawer)))
        return path

    monkeypatch.setattr("validation.figures.style.save", keep)
    rows = [ForestRow("Progression-free interval, unadjusted", 10.75, 2.28, 19.4, p, "1163 / 1291",
                      primary=True)]  # fmt: skip
    forest(rows, tmp_path / "f.png", title="Exposed against reference", measure=measure)
    for at, (first, one) in enumerate(boxes):
        for second, other in boxes[at + 1 :]:
            assert not one.overlaps(other), (first, second)

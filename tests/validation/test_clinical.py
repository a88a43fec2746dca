"""What a clinical reader expects: Table 1, estimates, missing data, net benefit."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sage.core.errors import InputError
from tests.validation.core_help import claim, load, patients, run_once
from validation.analysis.e_value import e_value
from validation.drafting.adjustment import adjust
from validation.drafting.draft import draft
from validation.results.results import Effect
from validation.statistics.decision_curve import net_benefit

COVARIATES = ("clinical:stage", "clinical:sex")


@pytest.fixture(scope="module")
def raw() -> pd.DataFrame:
    table = patients(300, log_hr=0.7)
    table.loc[::9, "stage"] = np.nan
    table.loc[::18, "sex"] = None
    return table


@pytest.fixture(scope="module")
def found(raw: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory):
    place = tmp_path_factory.mktemp("clinical")
    return run_once(place, raw, hypothesis=claim(covariates=COVARIATES))


def test_table_one_counts_the_groups_that_are_compared(found, raw: pd.DataFrame) -> None:
    rows = {row["variable"]: row for row in found.tables["table_one"]}
    exposed = raw.marker > raw.marker.median()
    assert rows["patients"] == {"variable": "patients", "all": "300"} | {
        "exposed": str(exposed.sum()),
        "reference": str((~exposed).sum()),
    }
    (marker,) = (row for name, row in rows.items() if name.endswith("units, median (quartiles)"))
    low, middle, high = raw.marker[exposed].quantile([0.25, 0.5, 0.75])
    assert marker["exposed"] == f"{middle:.3g} ({low:.3g} to {high:.3g})"
    one, two = raw.marker[exposed].dropna(), raw.marker[~exposed].dropna()
    gap = abs(one.mean() - two.mean()) / math.sqrt((one.var() + two.var()) / 2)
    assert marker["difference (SD)"] == f"{gap:.2f}"
    stages = raw.stage[exposed].dropna()
    for level in sorted(stages.unique()):
        count = (stages == level).sum()
        cell = f"{count} ({100 * count / len(stages):.0f}%)"
        assert rows[f"Stage: {level:g}, n (%)"]["exposed"] == cell
    stage = rows[f"Stage: {min(stages):g}, n (%)"]
    assert stage["missing"] == f"{raw.stage.isna().sum()} ({100 * raw.stage.isna().mean():.0f}%)"
    men = (raw.sex[exposed] == "male").sum()
    share = 100 * men / raw.sex[exposed].notna().sum()
    assert rows["Sex: male, n (%)"]["exposed"] == f"{men} ({share:.0f}%)"
    p, q = ((raw.sex[part] == "male").sum() / raw.sex[part].notna().sum()
            for part in (exposed, ~exposed))  # fmt: skip
    gap = abs(p - q) / math.sqrt((p * (1 - p) + q * (1 - q)) / 2)
    assert rows["Sex: female, n (%)"]["difference (SD)"] == f"{gap:.2f}"


def test_univariable_and_multivariable_are_those_of_lifelines(found, raw: pd.DataFrame) -> None:
    lifelines = pytest.importorskip("lifelines")
    rows = found.tables["univariable"]
    complete = raw.dropna().copy()
    frame = pd.DataFrame(
        {
            "x": (complete.marker > raw.marker.median()).astype(float),
            "stage": (complete.stage - complete.stage.mean()) / complete.stage.std(),
            "female": (complete.sex == "female").astype(float),
            "months": complete.months,
            "dead": complete.dead,
        }
    )

    def ratios(columns: list[str]) -> list[str]:
        fit = lifelines.CoxPHFitter().fit(frame[[*columns, "months", "dead"]], "months", "dead")
        table = fit.summary
        return [
            f"{row['exp(coef)']:.2f} ({row['exp(coef) lower 95%']:.2f} to "
            f"{row['exp(coef) upper 95%']:.2f})"
            for _, row in table.iterrows()
        ]

    names = ["x", "stage", "female"]
    assert [row["multivariable"] for row in rows] == ratios(names)
    assert [row["univariable"] for row in rows] == [ratios([name])[0] for name in names]


def test_net_benefit_under_censoring_is_vickers_estimate() -> None:
    lifelines = pytest.importorskip("lifelines")
    raw = patients(250, log_hr=0.5)
    risk = 1 / (1 + np.exp(-(raw.stage - 2.5)))
    for threshold, got in zip(
        (0.2, 0.5, 0.8), net_benefit(raw.months, raw.dead, risk, 24.0, [0.2, 0.5, 0.8]), strict=True
    ):
        mine = risk >= threshold
        curve = lifelines.KaplanMeierFitter().fit(raw.months[mine], raw.dead[mine])
        died = 1 - float(curve.predict(24.0))
        odds = threshold / (1 - threshold)
        assert got == pytest.approx(mine.mean() * (died - (1 - died) * odds), abs=1e-10)


@pytest.mark.parametrize(
    ("value", "lower", "upper", "scale", "share", "expected"),
    [
        # VanderWeele and Ding 2017: breastfeeding and infant death, RR 3.9 (1.8 to 8.7).
        (3.9, 1.8, 8.7, "odds ratio", 0.01, (7.26, 3.0)),
        (1 / 3.9, 1 / 8.7, 1 / 1.8, "odds ratio", 0.01, (7.26, 3.0)),
        (1.2, 0.9, 1.6, "hazard ratio", 0.01, (1.69, 1.0)),
        (4.0, 2.25, 9.0, "odds ratio", 0.5, (3.41, 2.37)),
    ],
)
def test_e_values_are_the_published_ones(value, lower, upper, scale, share, expected) -> None:
    effect = Effect(value=value, lower=lower, upper=upper, scale=scale)
    assert e_value(effect, share) == pytest.approx(expected, abs=0.01)


@example(0.9999999999999999, "odds ratio", 1.0)
@given(st.floats(0.05, 20), st.sampled_from(["hazard ratio", "odds ratio"]), st.floats(0, 1))
def test_an_effect_and_its_inverse_have_one_e_value(value, scale, share) -> None:
    one, two = (
        e_value(Effect(value=v, lower=v / 1.5, upper=v * 1.5, scale=scale), share)
        for v in (value, 1 / value)
    )
    # Near 1 the root of the formula turns the last digit of 1 / v into 1e-8.
    assert one == pytest.approx(two, rel=1e-7)
    assert one.estimate >= one.limit >= 1


def test_a_diagram_gives_back_door_sets_and_names_what_biases() -> None:
    arrows = ["age -> stage -> OS", "age -> OS", "age -> X", "X -> m -> OS", "X -> c", "OS -> c"]
    answer = adjust(arrows, ["X"], "OS", chosen=["m", "c", "elsewhere"])
    assert answer.covariates == ("age",)
    assert answer.mediators == ("m",)
    assert {exposure.variable: exposure.role for exposure in answer.warned} == {
        "m": "mediator",
        "c": "collider",
        "elsewhere": "unknown",
    }


def test_what_nobody_measured_is_said_and_the_m_bias_is_seen() -> None:
    open_ = adjust(["U -> X", "U -> OS", "X -> OS"], ["X"], "OS", measured=["age"])
    assert open_.covariates is None
    assert open_.open_path == ("X", "U", "OS")
    m = ["U1 -> X", "U1 -> grade", "U2 -> grade", "U2 -> OS", "X -> OS"]
    assert adjust(m, ["X"], "OS", measured=["grade"]).covariates == ()
    assert adjust(m, ["X"], "OS", measured=["grade"], chosen=["grade"]).warned[0].role == "collider"


@pytest.mark.parametrize(
    ("arrows", "says"),
    [
        (["a -> b", "b -> a"], "cycle"),
        (["age causes death"], "age causes death"),
        (["a -> OS"], '"X"'),
        (["OS -> X"], "OS"),
    ],
)
def test_bad_diagrams_are_refused_by_name(arrows: list[str], says: str) -> None:
    with pytest.raises(InputError, match=says):
        adjust(arrows, ["X"], "OS")


@given(st.sets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14))
def test_a_proposed_set_closes_every_back_door(pairs: set[tuple[int, int]]) -> None:
    """Against d-separation of the moral graph, written out anew."""
    nx = pytest.importorskip("networkx")
    arrows = [f"n{min(pair)} -> n{max(pair)}" for pair in pairs if pair[0] != pair[1]]
    answer = adjust([*arrows, "n2 -> n5"], ["n2"], "n5")
    graph = nx.DiGraph([tuple(arrow.split(" -> ")) for arrow in [*arrows, "n2 -> n5"]])
    graph.remove_edges_from(list(graph.out_edges("n2")))
    if answer.covariates is None:
        return
    chosen = set(answer.covariates)
    assert not chosen & nx.descendants(nx.DiGraph([(a, b) for a, b in
        (arrow.split(" -> ") for arrow in [*arrows, "n2 -> n5"])]), "n2")  # fmt: skip
    upward = {"n2", "n5"} | chosen
    upward |= set().union(*(nx.ancestors(graph, node) for node in upward))
    moral = graph.subgraph(upward).to_undirected()
    for node in upward:
        parents = [predecessor for predecessor in graph.predecessors(node) if predecessor in upward]
        moral = nx.compose(moral, nx.complete_graph(parents))
    moral.remove_nodes_from(chosen)
    assert not nx.has_path(moral, "n2", "n5")


def test_a_declared_diagram_decides_the_covariates_of_the_contract(tmp_path) -> None:
    cohort = load(tmp_path, patients())
    arrows = ("clinical:stage -> OS", "clinical:stage -> clinical:marker", "clinical:sex -> OS")
    contract = draft(claim(causes=arrows), cohort.dictionary())
    assert contract.covariates == ("clinical:stage",)
    hidden = ("health -> clinical:marker", "health -> OS")
    notes = draft(claim(causes=hidden), cohort.dictionary()).notes
    assert any("health" in note for note in notes)


def test_a_nomogram_shows_an_exposure_in_its_own_unit(tmp_path) -> None:
    from validation.analysis.analysis import Analysis
    from validation.methods.nomogram import nomogram_of

    raw = patients(300, log_hr=0.7)
    raw["marker"] = 70.0 + 10.0 * raw["marker"]
    low = {"variable": "clinical:marker", "label": "marker", "level": "low", "cut": "continuous"}
    given = claim(exposures=[low], comparison="per_sd", covariates=COVARIATES)
    found = run_once(tmp_path, raw, hypothesis=given)
    assert found.model is not None
    study, _ = Analysis.open(next(tmp_path.rglob("inputs/all"))).study()
    assert study is not None
    drawn = nomogram_of(found.model, study)
    assert drawn is not None
    line = next(line for line in drawn.lines if line.label.casefold().startswith("marker"))
    values = [float(text) for text, _ in line.marks]
    assert min(values) <= raw.marker.quantile(0.05)
    assert max(values) >= raw.marker.quantile(0.95)
    # The hazard falls with the marker or rises: points are a straight line in its own unit.
    points = [at for _, at in line.marks]
    assert np.ptp(np.diff(points)) == pytest.approx(0.0, abs=1e-9)

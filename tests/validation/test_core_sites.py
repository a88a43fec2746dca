"""Several rows of one patient, and the hospitals they come from."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation import core_help
from tests.validation.core_help import claim, load, patients, run_once
from tests.validation.test_stat_r import FIGURES
from tests.validation.test_stat_r import patients as cohort_of_r
from validation.drafting.draft import draft
from validation.inputs.population import confirmation_mask
from validation.methods.sites import _share
from validation.statistics.cox import cox
from validation.statistics.permuted import permutations

VARIABLE = """
[variables.{0}]
table = "clinical"
column = "{0}"
kind = "categorical"
label = "{1}"
"""
PERSON, CENTER = VARIABLE.format("person", "Patient"), VARIABLE.format("center", "Center")


def declare(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    """Let the builders' cohort.toml say more of its patients."""
    plain = 'patient = {{ table = "clinical" }}'
    assert plain in core_help.TOML
    named = f'patient = {{{{ table = "clinical", {rule} }}}}'
    monkeypatch.setattr(core_help, "TOML", core_help.TOML.replace(plain, named))


def eyes() -> pd.DataFrame:
    """Both eyes of each patient of the retinopathy trial: laser on one of them."""
    table = cohort_of_r("retinopathy")
    return pd.DataFrame(
        {
            "patient": [f"E{at:04d}" for at in range(len(table))],
            "person": [f"A{code:04d}" for code in table.cluster],
            "marker": table["x.trt"],
            "stage": table["x.risk"],
            "sex": np.where(table["x.laser"] == 1, "male", "female"),
            "months": table.time,
            "dead": table.status,
        }
    )


def hospitals(n: int = 300, *, confounded: float) -> pd.DataFrame:
    """Six centers that differ in marker and survival; the marker itself does nothing."""
    raw = patients(n, log_hr=0.0, seed=5)
    rng = np.random.default_rng(12)
    center = rng.integers(0, 6, n)
    raw["center"] = [f"Center {code}" for code in center]
    raw["marker"] = rng.normal(size=n) + confounded * center
    time = rng.exponential(40 / np.exp(confounded * (center - 2.5)))
    stop = rng.uniform(12, 90, size=n)
    raw["months"], raw["dead"] = np.minimum(time, stop) + 0.1, (time <= stop).astype(int)
    return raw


def test_the_claim_on_two_eyes_of_each_patient_has_the_robust_figures_of_r(tmp_path, monkeypatch):
    declare(monkeypatch, 'cluster = "clinical:person"')
    r = next(line[3] for line in FIGURES if line[:3] == ("retinopathy", "cluster", ["x.trt"]))
    found = run_once(tmp_path, eyes(), hypothesis=claim(direction="lower_risk"), more=PERSON)
    primary = next(test for test in found.tests if test.id == "primary")
    assert primary.effect is not None
    assert np.log(primary.effect.value) == pytest.approx(r["coef"][0], rel=1e-6)
    se = np.log(primary.effect.upper / primary.effect.lower) / 2 / 1.959964
    assert se == pytest.approx(r["se"][0], rel=1e-5)
    assert primary.statistic == pytest.approx(r["score"][0], rel=1e-5)
    assert any("197 patients" in note for note in primary.notes)
    assert {test.method for test in found.tests}.isdisjoint({"rmst", "concordance", "calibration"})


def test_tests_that_take_rows_as_independent_are_named_in_the_contract(tmp_path, monkeypatch):
    declare(monkeypatch, 'cluster = "clinical:person"')
    plan = draft(claim(), load(tmp_path, eyes(), more=PERSON).dictionary())
    assert plan.cluster == "clinical:person"
    assert any("as independent: rmst" in note for note in plan.notes)
    searched = claim(exposures=[{"variable": "clinical:stage", "label": "s", "cut": "optimal"}])
    with pytest.raises(InputError, match="maximally_selected"):
        draft(searched, load(tmp_path, eyes(), more=PERSON).dictionary())


def test_rows_of_one_person_stay_on_one_side_of_a_split_and_of_a_permutation(tmp_path, monkeypatch):
    declare(monkeypatch, 'cluster = "clinical:person"')
    cohort = load(tmp_path, eyes(), more=PERSON)
    plan = draft(claim(), cohort.dictionary())
    table = cohort.table(plan.keys())
    held = pd.Series(confirmation_mask(table, plan), index=table["clinical:person"])
    assert 0.3 < held.mean() < 0.7
    assert (held.groupby(level=0).nunique() == 1).all()
    codes = np.array([0, 0, 1, 1, 2, 2, 3, 4, 4, 4])
    for order in permutations(10, 50, seed=1, clusters=codes):
        for code in range(5):
            assert len({codes[at] for at in order[codes == code]}) == 1
            assert (codes == codes[order[codes == code]][0]).sum() == (codes == code).sum()


def test_slides_taken_for_patients_are_refused_unless_the_patient_is_named(tmp_path, monkeypatch):
    raw = patients(80)
    raw["person"] = [f"TCGA-AB-{at // 2:04d}" for at in range(80)]
    raw["patient"] = [f"{item}-01Z-00-DX{at % 2}" for at, item in enumerate(raw["person"])]
    with pytest.raises(InputError, match="40 patients"):
        load(tmp_path / "refused", raw)
    declare(monkeypatch, 'cluster = "clinical:person"')
    cohort = load(tmp_path / "named", raw, more=PERSON)
    assert cohort.dictionary().cluster == "clinical:person"
    assert len(cohort.patients) == 80


def test_a_cluster_or_site_that_is_no_variable_is_refused(tmp_path, monkeypatch):
    declare(monkeypatch, 'site = "clinical:hospital"')
    with pytest.raises(InputError, match="clinical:hospital"):
        load(tmp_path, patients(60))


def test_the_source_site_of_tcga_barcodes_is_a_variable_with_any_number_of_levels(
    tmp_path, monkeypatch
):
    declare(monkeypatch, 'ids = "tcga", site = "barcode"')
    raw = patients(330)
    raw["patient"] = [f"TCGA-{10 + at % 33}-{at:04d}" for at in range(330)]
    cohort = load(tmp_path, raw)
    key = "clinical:tissue_source_site"
    assert cohort.dictionary().site == key
    assert sorted(cohort.column(key).unique()) == [str(10 + at) for at in range(33)]
    plan = draft(claim(strata=[key]), cohort.dictionary())
    assert plan.strata == (key,)
    assert plan.test("site").method == "site"


def test_a_claim_that_is_the_centers_is_limited_and_shown_within_them(tmp_path, monkeypatch):
    declare(monkeypatch, 'site = "clinical:center"')
    found = run_once(tmp_path, hospitals(confounded=0.5), more=CENTER)
    assert found.number("primary.p").value < 0.001
    assert found.number("site.exposure.p").value < 0.001
    assert found.number("site.exposure.share").value > 0.2
    assert found.number("site.outcome.p").value < 0.001
    assert found.number("site.within.p").value > 0.05
    assert any("the exposure differs by site (p" in limit for limit in found.verdict.limits)
    within = next(test for test in found.tests if test.id == "site")
    assert within.effect is not None
    assert within.effect.lower < 1 < within.effect.upper


def test_centers_that_explain_nothing_leave_no_limit_and_each_is_left_out_once(
    tmp_path, monkeypatch
):
    declare(monkeypatch, 'site = "clinical:center"')
    raw = hospitals(confounded=0.0)
    found = run_once(tmp_path, raw, more=CENTER)
    assert not any("differs by site" in limit for limit in found.verdict.limits)
    curve = found.controls.specification
    assert curve is not None
    rows = [row for row in found.tables["specification"] if "without site" in row["exclusions"]]
    assert len(rows) == curve.left_out == 6 * len({row["covariates"] for row in rows})
    row = next(row for row in rows if row["exclusions"].endswith("Center 2"))
    kept = raw[raw.center != "Center 2"]
    high = (kept.marker > raw.marker.median()).astype(float)
    fit = cox(kept.months, kept.dead, high, ["high"])
    assert row["covariates"] == "none"
    assert float(row["estimate"]) == pytest.approx(fit.hr[0], abs=5e-4)


def test_the_share_explained_by_sites_is_omega_squared_by_hand():
    values = np.array([1.0, 2.0, 3.0, 5.0, 6.0, 7.0])
    codes = np.array([0, 0, 0, 1, 1, 1])
    # Between 24, within 4 (error 1 on 4 df), total 28.
    assert _share(values, codes) == pytest.approx((24 - 1) / (28 + 1))
    assert _share(values, np.array([0, 1, 0, 1, 0, 1])) == pytest.approx(
        max(0.0, (28 - 80 / 3 - 20 / 3) / (28 + 20 / 3))
    )

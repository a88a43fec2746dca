"""The paper's hypotheses on the real TCGA-BLCA, every figure checked by a second library."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.draws import draw_few
from tests.validation.core_help import ROOT, run, shared
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.cohort.findings import check_cohort
from validation.contracts.contract import read_hypothesis
from validation.drafting.draft import draft
from validation.drafting.freezing import freeze
from validation.ledger.ledger import Ledger
from validation.results.results import Results
from validation.run.runner import finalize

pytestmark = pytest.mark.shared
NAMES = ("e5_fabp5_tls", "table8_cxcl13", "e1_adrm1_male")
DAYS = 365.25 / 12


@pytest.fixture(scope="module")
def cohort() -> Cohort:
    return cohorts.load(shared("tcga_blca"))


@pytest.fixture(scope="module")
def results(cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Results]:
    out = tmp_path_factory.mktemp("tcga")
    ledger = Ledger(out / "ledger.jsonl")
    done = []
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        for name in NAMES:
            hypothesis = read_hypothesis(ROOT / "docs" / "hypotheses" / f"{name}.json")
            frozen = freeze(draft(hypothesis, cohort.dictionary(), seed=0), cohort)
            run(frozen, cohort, out / name, ledger=ledger)
            done.append((frozen, out / name))
    return dict(zip(NAMES, finalize(done, ledger), strict=True))


def raw() -> pd.DataFrame:
    """The cohort by another way: the published log2-CPM table, TCGA-CDR and TLS tables by hand."""
    folder = shared("tcga_blca")
    genes = pd.read_csv(folder / "tcga_blca_key_genes_log2cpm.csv")
    genes = genes[genes["Sample Type"] == "Primary Tumor"]
    table = genes.groupby("Case ID")[["FABP5", "CXCL13", "ADRM1"]].mean()
    cdr = pd.read_csv(folder / "TCGA-CDR.csv", na_values=["#N/A", "[Not Available]"])
    cdr = cdr[cdr["type"] == "BLCA"].set_index("bcr_patient_barcode")
    tls = pd.read_csv(folder / "Clinical_QPdata_perpatient.csv")
    tls = tls[(tls["Tumor_type"] == "BLCA") & (tls["Slide_set"] == "test")]
    tls = tls.set_index("bcr_patient_barcode")["TLSdenscm2"]
    nodes = pd.read_csv(folder / "clinical_blca.csv").set_index("bcr_patient_barcode")
    table = cdr.join(table, how="left").join(tls, how="left").join(nodes[["pathologic_N"]])
    stage = {"Stage I": 1, "Stage II": 2, "Stage III": 3, "Stage IV": 4}
    table["stage"] = table["ajcc_pathologic_tumor_stage"].map(stage)
    return table


def joint(table: pd.DataFrame) -> pd.DataFrame:
    """E.5's two groups: FABP5 high with scarce TLS, FABP5 low with abundant TLS."""
    rows = table.dropna(subset=["FABP5", "TLSdenscm2", "OS.time"]).copy()
    high = rows["FABP5"] > rows["FABP5"].median()
    scarce = rows["TLSdenscm2"] <= rows["TLSdenscm2"].median()
    rows = rows[(high & scarce) | (~high & ~scarce)]
    return rows.assign(exposed=(high & scarce)[rows.index].astype(float))


def test_the_outcomes_are_those_of_the_cdr(cohort: Cohort) -> None:
    dictionary = cohort.dictionary()
    os, pn = dictionary.endpoint("OS"), dictionary.endpoint("pN_positive")
    assert os is not None and pn is not None
    assert (dictionary.n_patients, os.n, os.events) == (412, 411, 180)
    assert (pn.n, pn.events) == (370, 131)
    assert dictionary.expression_n == 408
    by_key = {variable.key: variable.n for variable in dictionary.variables}
    assert by_key["imaging:tls_density"] == 247
    assert by_key["imaging:tls_density_all_slides"] == 307


def test_log2_cpm_agrees_with_the_published_table_of_key_genes(cohort: Cohort) -> None:
    theirs = pd.read_csv(shared("tcga_blca") / "tcga_blca_key_genes_log2cpm.csv")
    theirs = theirs[theirs["Sample Type"] == "Primary Tumor"].groupby("Case ID")["FABP5"].mean()
    ours = cohort.column("expression:FABP5").dropna()
    assert len(ours) == len(theirs) == 408
    assert float((ours - theirs[ours.index]).abs().max()) < 1e-3


def test_check_finds_the_known_traps_of_tcga_blca(cohort: Cohort) -> None:
    found = check_cohort(cohort)
    assert {item.code for item in found} >= {
        "outdated_follow_up", "training_slides", "normal_samples", "several_aliquots",
        "duplicate_symbols", "several_rows",
    }  # fmt: skip
    assert not [item for item in found if item.severity == "error"]


def value(results: Results, key: str) -> float:
    found = results.numbers[key].value
    assert found is not None
    return float(found)


def test_e5_log_rank_hazard_ratio_and_medians_agree_with_lifelines(
    results: dict[str, Results],
) -> None:
    from lifelines import CoxPHFitter, KaplanMeierFitter
    from lifelines.statistics import logrank_test

    found, rows = results["e5_fabp5_tls"], joint(raw())
    one, two = rows[rows["exposed"] == 1], rows[rows["exposed"] == 0]
    test = logrank_test(one["OS.time"], two["OS.time"], one["OS"], two["OS"])
    assert value(found, "groups.exposed.n") == len(one)
    assert value(found, "groups.reference.n") == len(two)
    assert value(found, "primary.p") == pytest.approx(test.p_value, rel=1e-6)
    fit = CoxPHFitter().fit(rows[["OS.time", "OS", "exposed"]], "OS.time", "OS")
    assert value(found, "primary.effect") == pytest.approx(
        float(np.exp(fit.params_["exposed"])), rel=1e-5
    )
    limits = np.exp(fit.confidence_intervals_.loc["exposed"])
    assert value(found, "primary.lower") == pytest.approx(float(limits.iloc[0]), rel=1e-4)
    assert value(found, "primary.upper") == pytest.approx(float(limits.iloc[1]), rel=1e-4)
    curve = KaplanMeierFitter().fit(one["OS.time"], one["OS"])
    assert value(found, "kaplan_meier.exposed.median") == pytest.approx(
        curve.median_survival_time_ / DAYS
    )


def test_e5_adjusted_model_discrimination_and_calibration_agree_with_scikit_survival(
    results: dict[str, Results],
) -> None:
    from sksurv.linear_model import CoxPHSurvivalAnalysis
    from sksurv.metrics import brier_score, concordance_index_censored, cumulative_dynamic_auc
    from sksurv.util import Surv

    found = results["e5_fabp5_tls"]
    rows = joint(raw()).dropna(subset=["stage"])
    months = rows["OS.time"].to_numpy() / DAYS
    age = rows["age_at_initial_pathologic_diagnosis"].astype(float)
    sex = (rows["gender"] == "FEMALE").astype(float)
    X = np.column_stack([rows["exposed"], age, sex, rows["stage"]])
    y = Surv.from_arrays(rows["OS"] == 1, months)
    fit = CoxPHSurvivalAnalysis(ties="efron", tol=1e-12).fit(X, y)
    assert value(found, "adjusted.effect") == pytest.approx(float(np.exp(fit.coef_[0])), rel=1e-6)
    risk = fit.predict(X)
    apparent = concordance_index_censored(y["event"], y["time"], risk)[0]
    assert value(found, "calibration.harrell_apparent") == pytest.approx(apparent, abs=1e-6)
    assert value(found, "concordance.with.harrell") == pytest.approx(apparent, abs=1e-6)
    alone = CoxPHSurvivalAnalysis(ties="efron", tol=1e-12).fit(X[:, 1:], y).predict(X[:, 1:])
    before = concordance_index_censored(y["event"], y["time"], alone)[0]
    assert value(found, "concordance.gain") == pytest.approx(apparent - before, abs=1e-6)
    for horizon in (12, 36, 60):
        theirs, _ = cumulative_dynamic_auc(y, y, risk, [horizon])
        ours = value(found, f"concordance.with.auc_{horizon}")
        assert ours == pytest.approx(float(theirs[0]), abs=1e-6)
    horizon = value(found, "calibration.horizon")
    alive = [item(horizon) for item in fit.predict_survival_function(X)]
    _, theirs = brier_score(y, y, np.array(alive)[:, None], [horizon])
    assert value(found, "calibration.brier") == pytest.approx(float(theirs[0]), abs=1e-3)
    # a corrected slope shrinks, a corrected concordance falls
    assert 0.8 < value(found, "calibration.slope") < 1
    assert value(found, "calibration.harrell") < apparent


def test_e5_is_not_supported_by_the_data_against_the_paper(results: dict[str, Results]) -> None:
    found = results["e5_fabp5_tls"]
    assert (found.verdict.verdict, found.verdict.because) == ("inconclusive", "power")
    assert value(found, "primary.lower") < 1 < value(found, "primary.upper")
    assert value(found, "pN_positive.secondary.effect") < 1


def test_all_are_in_one_ledger_and_none_is_claimed(results: dict[str, Results]) -> None:
    assert {result.verdict.verdict for result in results.values()} == {"inconclusive"}
    assert {value(result, "ledger.claims") for result in results.values()} == {3.0}


def test_training_slides_are_left_out(results: dict[str, Results]) -> None:
    steps = {join.reason: join.after for join in results["e5_fabp5_tls"].joins}
    assert steps["kept rows with Slide_set = test"] == 247


def test_a_real_second_cohort_repeats_the_primary_test(cohort: Cohort, tmp_path: Path) -> None:
    from lifelines.statistics import logrank_test

    folder = shared("cohorts") / "GSE13507"
    second = cohorts.load(folder)
    assert second.id == "gse13507-invasive"
    hypothesis = read_hypothesis(ROOT / "docs" / "hypotheses" / "cxcl13_os_replicated.json")
    frozen = freeze(draft(hypothesis, cohort.dictionary()), cohort)
    found = run(frozen, cohort, tmp_path / "out", ledger=Ledger(tmp_path / "l"), replicate=second)
    clinical = pd.read_csv(folder / "BC_ClinData_233rows.csv").set_index("GSMid")
    genes = pd.read_csv(folder / "BCinvasiveCibersortX.txt", sep="\t", index_col=0)
    rows = clinical[clinical["PrimaryBladderCancerType"] == "Primary_BC_Invasive"]
    rows = rows.join(genes.loc["CXCL13"].rename("gene"))
    high = rows["gene"] > rows["gene"].median()
    time, event = rows["survivalMonth"], rows["overall.survival"] == 2
    test = logrank_test(time[high], time[~high], event[high], event[~high])
    assert value(found, "replicate.primary.p") == pytest.approx(test.p_value, rel=1e-6)
    assert value(found, "replicate.population.n") == 62
    assert any(reason.rule == "replication" for reason in found.verdict.reasons)
    codes = {item.code: item.severity for item in check_cohort(second)}
    assert codes["one_two_coding"] == "info"

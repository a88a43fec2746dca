"""Cohorts that would make a claim look true: proxies, immortal time, codes read as numbers.

None may be supported, and `sage cohort check` names each; honest predictors pass it silently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import InputError
from tests.validation.core_help import claim, frozen_for, load, patients, shared, validate, write
from validation import cohort as cohorts
from validation.statistics.leakage import find_leak

STANFORD = Path(__file__).parents[1] / "validation" / "time_reference" / "stanford.csv"
LEAKS = {"outcome_proxy", "grows_with_follow_up", "recorded_by_outcome"}
Attack = Callable[[pd.DataFrame, np.random.Generator], pd.Series]


def proxy(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """The event flag, wrong in one patient of twenty (hazard ratio near 36)."""
    wrong = rng.random(len(table)) < 0.05
    return pd.Series(np.where(wrong, 1 - table["dead"], table["dead"]))


def log_time(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """Follow-up with noise (hazard ratio near 0.04)."""
    time = np.log(table["months"])
    return (time - time.mean()) / time.std() + rng.normal(scale=0.6, size=len(table))


def noisy_flag(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    return table["dead"] + rng.normal(scale=0.3, size=len(table))


def visits(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """One visit every three months: the more, the longer one was followed."""
    return pd.Series(rng.poisson(table["months"] / 3)).astype(float)


def ever_treated(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """Everybody is treated after some waiting, who lives to see it."""
    return pd.Series((rng.exponential(10, len(table)) < table["months"]).astype(float))


def cycles(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """One cycle a month, six for most: the few had no time for more."""
    planned = np.where(rng.random(len(table)) < 0.8, 6, rng.integers(1, 6, len(table)))
    return pd.Series(np.minimum(np.floor(table["months"]), planned))


def completed(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """Six months of treatment, completed by most who lived so long."""
    stayed = rng.random(len(table)) < 0.7
    return pd.Series(((table["months"] >= 6) & stayed).astype(float))


def response(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """A response at three months, in half of those who were then alive."""
    return pd.Series(((table["months"] > 3) & (rng.random(len(table)) < 0.5)).astype(float))


def autopsy(table: pd.DataFrame, rng: np.random.Generator) -> pd.Series:
    """A grade that was read at autopsy, of the dead alone."""
    grade = pd.Series(rng.integers(1, 60, len(table)).astype(float))
    return grade.where(table["dead"] == 1)


ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        proxy,
        noisy_flag,
        log_time,
        visits,
        ever_treated,
        cycles,
        completed,
        autopsy,
    )
}


def poisoned(attack: Attack, seed: int = 4, n: int = 400) -> pd.DataFrame:
    table = patients(n, seed=seed)
    return table.assign(marker=attack(table, np.random.default_rng(seed)).to_numpy())


@pytest.mark.parametrize("name", ATTACKS)
def test_check_names_what_knows_the_outcome(name: str, tmp_path: Path) -> None:
    found = cohorts.check(write(tmp_path, poisoned(ATTACKS[name])))
    named = [item for item in found if item.code in LEAKS]
    assert [item.where for item in named] == ["variables.clinical:marker"]
    assert all("known_at" in item.remedy for item in named)


@pytest.mark.parametrize(
    ("name", "known"),
    [("proxy", "baseline"), ("log_time", "unknown"), ("ever_treated", "baseline")],
)
def test_what_knows_the_outcome_is_never_supported(name: str, known: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "c", poisoned(ATTACKS[name]))
    text = (folder / "cohort.toml").read_text().replace('"baseline"', f'"{known}"')
    (folder / "cohort.toml").write_text(text)
    direction = "higher_risk" if name == "proxy" else "lower_risk"
    found = validate(tmp_path, folder, direction=direction, covariates=["clinical:stage"])
    verdict = found["verdict"]
    assert (verdict["verdict"], verdict["because"]) == ("inconclusive", "data")
    assert found["numbers"]["primary.p"]["value"] < 1e-4


def stanford(folder: Path, *, wait: bool) -> Path:
    table = pd.read_csv(STANFORD)
    if not wait:
        table = table.drop(columns="wait")
    table = table.rename(columns={"transplant": "marker"})
    table["marker"] = (table["marker"] == "yes").astype(int)
    table["months"] = table.pop("days") * 12 / 365.25
    table["stage"], table["sex"] = np.arange(len(table)) % 3 + 1, "male"
    return write(folder, table)


def test_ever_transplanted_is_named_and_not_supported(tmp_path: Path) -> None:
    found = {item.code: item for item in cohorts.check(stanford(tmp_path / "w", wait=True))}
    # Its own times are in days where follow-up is in months, so they do not fit there.
    assert "grows_with_follow_up" in found and "happens_during_follow_up" not in found
    folder = stanford(tmp_path / "c", wait=False)
    found = {item.code: item for item in cohorts.check(folder)}
    assert found["grows_with_follow_up"].where == "variables.clinical:marker"
    result = validate(tmp_path, folder, direction="lower_risk", covariates=["clinical:stage"])
    assert result["numbers"]["primary.effect"]["value"] == pytest.approx(0.266, abs=0.01)
    assert result["verdict"]["verdict"] == "inconclusive"
    assert [
        reason["outcome"] for reason in result["verdict"]["reasons"] if reason["rule"] == "timing"
    ] == ["prevents"]


def test_a_column_of_its_own_times_is_offered_as_known_at(tmp_path: Path) -> None:
    rng = np.random.default_rng(7)
    table = patients(300)
    when = np.round(rng.exponential(12, len(table)), 1)
    given = when < table["months"]
    table["marker"], table["started"] = given.astype(int), np.where(given, when, np.nan)
    folder = write(tmp_path, table)
    found = {item.code: item for item in cohorts.check(folder)}
    remedy = found["happens_during_follow_up"].remedy
    assert remedy == 'known_at = { column = "started", before = "0" }'
    with pytest.raises(InputError, match=re.escape(remedy)):
        frozen_for(cohorts.load(folder), claim())
    text = (folder / "cohort.toml").read_text()
    everybody = table.assign(started=table["months"] / 2, marker=np.arange(len(table)) % 25 > 0)
    everybody.to_csv(folder / "clinical.csv", index=False)
    codes = {item.code for item in cohorts.check(folder)}
    assert "happens_during_follow_up" not in codes, "most are exposed, and all have a time"
    table.to_csv(folder / "clinical.csv", index=False)
    own = text.replace('column = "marker"\n', 'column = "marker"\nknown_at = "baseline"\n')
    (folder / "cohort.toml").write_text(own)
    assert frozen_for(cohorts.load(folder), claim()).sha256


RELAPSE = """
[endpoints.relapse]
kind = "survival"
table = "clinical"
time = "relapse_months"
time_unit = "months"
event = "relapsed"
event_values = [1]
censored_values = [0]
"""


@pytest.mark.parametrize("beyond", [True, False])
def test_an_endpoint_that_follows_the_dead_is_refused(beyond: bool, tmp_path: Path) -> None:
    table = patients(300)
    relapsed = np.arange(300) % 3 == 0
    ends = np.where((table["dead"] == 1) & beyond, 96.0, table["months"])
    table["relapsed"] = relapsed.astype(int)
    table["relapse_months"] = np.where(relapsed, 0.7 * table["months"], ends)
    folder = write(tmp_path, table, more=RELAPSE)
    codes = {item.code for item in cohorts.check(folder) if item.severity == "error"}
    assert codes == ({"followed_after_death"} if beyond else set())
    if beyond:
        with pytest.raises(InputError, match="after their death"):
            frozen_for(cohorts.load(folder), claim(endpoint="relapse"))
    assert frozen_for(cohorts.load(folder), claim()).sha256


def test_outcomes_lost_by_exposure_support_no_claim(tmp_path: Path) -> None:
    for at in range(2):
        table = patients(400, log_hr=1.1, seed=at)
        lost = np.arange(400) % 4 == 0 if at else table["marker"] > 0.3
        gone = lost & (table.index % 2 == 0)
        folder = write(tmp_path / f"{at}", table.assign(months=table["months"].where(~gone)))
        found = validate(folder, folder, covariates=["clinical:stage"])
        says = ("inconclusive", "assumption") if at == 0 else ("supported", "evidence")
        assert (found["verdict"]["verdict"], found["verdict"]["because"]) == says


def test_a_response_that_had_to_be_lived_to_is_named() -> None:
    """Most biases are below three standard errors, where nothing else is looked for."""
    found = []
    for seed in range(6):
        table = patients(800, seed=seed)
        x = response(table, np.random.default_rng(seed + 99)).to_numpy()
        found.append(find_leak(x, *(table[item].to_numpy(float) for item in ("dead", "months"))))
    assert sum(leak is not None and leak.kind == "follow_up" for leak in found) >= 5


@pytest.mark.parametrize("log_hr", [0.0, 1.1, 2.0])
def test_honest_markers_are_not_suspected(log_hr: float) -> None:
    for seed in range(12):
        table = patients(300, log_hr=log_hr, seed=seed)
        event, time = (table[item].to_numpy(dtype=float) for item in ("dead", "months"))
        for name in ("marker", "stage"):
            assert find_leak(table[name].to_numpy(dtype=float), event, time) is None, (seed, name)


def test_a_date_of_entry_is_not_taken_for_the_outcome() -> None:
    """It tells how long the censored were followed, and nothing of the hazard."""
    for seed in range(6):
        rng = np.random.default_rng(seed)
        entered = rng.uniform(0, 60, 400)
        death = rng.exponential(50, 400)
        stop = 66 - entered
        event = (death <= stop).astype(float)
        assert find_leak(entered, event, np.minimum(death, stop)) is None, seed


def left(
    rng: np.random.Generator, death: np.ndarray, n: int = 400
) -> tuple[np.ndarray, np.ndarray]:
    """Event flag and follow-up in days, where patients also leave by chance."""
    leave = np.minimum(rng.uniform(300, 3650, n), rng.exponential(6000, n) + 60)
    return (death <= leave).astype(float), np.maximum(np.minimum(death, leave).round(), 1)


def test_a_treatment_that_some_wait_for_is_named() -> None:
    """Meant for 70% of the patients and reached after 500 days on average by those who live."""
    named = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        event, time = left(rng, rng.exponential(1500, 400))
        treated = (rng.exponential(500, 400) < time) & (rng.random(400) < 0.7)
        named += find_leak(treated.astype(float), event, time) is not None
    assert named >= 36


@pytest.mark.parametrize(("early", "late"), [(0.15, 1.0), (0.3, 0.5), (0.5, 1.0)])
def test_a_marker_whose_effect_fades_is_not_taken_for_a_wait(early: float, late: float) -> None:
    """The hazard ratio is `early` for 500 days, then `late`; nobody is spared from leaving."""
    named = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        marker, risk = rng.random(400) < 0.5, rng.exponential(1500, 400)
        first = np.where(marker, risk / early, risk)
        later = 500 + (risk - 500 * np.where(marker, early, 1)) / np.where(marker, late, 1)
        event, time = left(rng, np.where(first < 500, first, later))
        named += find_leak(marker.astype(float), event, time) is not None
    assert named <= 3


def test_relabeling_time_and_direction_changes_no_suspicion() -> None:
    """The unit of time, the sign of the marker, and any monotone scale of it do not matter."""
    for attack in ATTACKS.values():
        table = poisoned(attack)
        event, time = (table[item].to_numpy(dtype=float) for item in ("dead", "months"))
        x = table["marker"].to_numpy(dtype=float)
        kinds = {
            leak.kind if leak is not None else None
            for leak in (find_leak(x, event, time), find_leak(-x, event, time * 30.4),
                         find_leak(np.arctan(x), event, time / 12))
        }  # fmt: skip
        assert len(kinds) == 1
        assert kinds != {None}


def test_built_in_predictors_pass_silently() -> None:
    codes = {item.code for item in cohorts.check("gbsg2")}
    assert not codes & {*LEAKS, "mixed_units", "impossible_value", "events_last", "risk_protects"}


@pytest.mark.shared
@pytest.mark.parametrize("name", ["tcga_blca", "cohorts/GSE13507"])
def test_shared_cohorts_raise_no_false_alarm(name: str) -> None:
    found = [item for item in cohorts.check(shared(name)) if item.severity != "info"]
    expected = {"outdated_follow_up", "training_slides", "timing_undeclared"}  # chemotherapy
    expected |= {"mostly_missing"}  # performance status
    assert {item.code for item in found} <= expected


# -- values and identifiers ----------------------------------------------------------------------

AGE = '[variables.age]\ntable = "clinical"\ncolumn = "age"\nkind = "continuous"\nunit = "years"\n'


def aged(seed: int = 1) -> pd.DataFrame:
    table = patients()
    rng = np.random.default_rng(seed)
    return table.assign(age=np.round(rng.normal(66, 10, len(table)).clip(30, 92)))


def only(folder: Path) -> dict[str, tuple[str, str]]:
    return {item.code: (item.severity, item.remedy) for item in cohorts.check(folder)}


@pytest.mark.parametrize("code", [-1, 999])
def test_ages_that_are_codes_are_found(code: int, tmp_path: Path) -> None:
    table = aged()
    table.loc[:8, "age"] = code
    found = only(write(tmp_path, table, more=AGE))
    missing = f'missing = ["{code}"]'
    severity, remedy = found["impossible_value"]
    assert severity == "error" and missing in remedy
    assert only(write(tmp_path, table, more=AGE, extra_table=missing)) == {}


@pytest.mark.parametrize("count", [3, 120])
def test_ages_in_days_for_a_part_are_found(count: int, tmp_path: Path) -> None:
    table = aged()
    table.loc[: count - 1, "age"] *= 365.25
    found = only(write(tmp_path, table, more=AGE))
    assert found["mixed_units"][0] == "error"
    found = only(
        write(tmp_path, table, more=AGE.replace('"years"', '"units"').replace("age]", "a]"))
    )
    assert found["mixed_units"][0] == "error"


FAULTS: dict[str, tuple[str, Callable[[pd.DataFrame], object]]] = {
    "missing_code": ("warning", lambda table: table.marker.where(table.index > 2, -9)),
    "risk_protects": ("warning", lambda table: 5 - table.stage),
    "ids_twice": ("error", lambda table: table.patient.replace("ID0005", "id0004")),
    "one_two_coding": ("warning", lambda table: table.dead.replace(0, 2)),
}
"""A fault of a column, and its severity; one as the event is asked about whatever the times say."""


@pytest.mark.parametrize("code", FAULTS)
def test_a_fault_of_one_column_is_found(code: str, tmp_path: Path) -> None:
    severity, change = FAULTS[code]
    table = patients(400).assign(marker=lambda table: np.exp(table["marker"]))
    changed: Any = change(table)
    folder = write(tmp_path, table.assign(**{changed.name: changed}))
    if code == "one_two_coding":
        text = (folder / "cohort.toml").read_text().replace("[0]", "[2]")
        (folder / "cohort.toml").write_text(text)
    assert only(folder)[code][0] == severity


def test_spellings_of_one_sex_are_found_with_the_lines_to_write(tmp_path: Path) -> None:
    table = patients()
    spelled = {"male": ["male", "Male ", "M"], "female": ["female", "F", "FEMALE"]}
    table["sex"] = [spelled[item][at % 3] for at, item in enumerate(table["sex"])]
    folder = write(tmp_path, table)
    found = only(folder)
    assert found["mixed_spelling"][0] == "error"
    assert found["not_binary"][0] == "error"
    text = (folder / "cohort.toml").read_text()
    values = found["mixed_spelling"][1]
    text = text.replace('label = "Sex"', f'label = "Sex"\n{values}')
    (folder / "cohort.toml").write_text(text)
    assert only(folder) == {}


def test_identifiers_in_another_spelling_are_found(tmp_path: Path) -> None:
    table = patients()
    more = '[tables.lab]\nfile = "lab.csv"\nkey = "id"\nknown_at = "baseline"\n'
    more += '[variables.x]\ntable = "lab"\ncolumn = "x"\nkind = "continuous"\n'
    folder = write(tmp_path, table, more=more)
    changed = [text.lower() if at < 30 else text for at, text in enumerate(table["patient"])]
    pd.DataFrame({"id": changed, "x": table["marker"]}).to_csv(folder / "lab.csv", index=False)
    found = {item.code: item for item in cohorts.check(folder)}
    assert found["ids_in_another_form"].severity == "error"
    assert "30" in found["ids_in_another_form"].message
    pd.DataFrame({"id": table["patient"], "x": table["marker"]}).to_csv(
        folder / "lab.csv", index=False
    )
    assert only(folder) == {}
    pd.DataFrame({"id": "lab_" + table["patient"], "x": table["marker"]}).to_csv(
        folder / "lab.csv", index=False
    )
    assert {"empty", "weak_join"} <= {*only(folder)}  # nobody joins


def test_events_coded_one_two_the_wrong_way_round_are_found(tmp_path: Path) -> None:
    table = patients(400)
    table["months"] = np.where(table["dead"] == 1, table["months"], 90 + table.index % 7)
    table["dead"] = np.where(table["dead"] == 1, 2, 1)
    for event, censored, swapped in (("[2]", "[1]", False), ("[1]", "[2]", True)):
        folder = write(tmp_path, table)
        text = (folder / "cohort.toml").read_text()
        text = text.replace("event_values = [1]", f"event_values = {event}")
        text = text.replace("censored_values = [0]", f"censored_values = {censored}")
        (folder / "cohort.toml").write_text(text)
        found = only(folder)
        assert ("events_last" in found) is swapped
    assert found["events_last"][0] == "error"
    assert "event_values" in found["events_last"][1]


def test_every_warning_and_error_has_a_remedy_and_the_exit_code_says_errors(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from sage.cli.cohort import app

    table = aged().assign(marker=poisoned(proxy, n=240)["marker"])
    warned = CliRunner().invoke(app, ["check", str(write(tmp_path, table, more=AGE)), "--json"])
    assert warned.exit_code == 0
    assert all(load["remedy"] for load in json.loads(warned.stdout))
    table.loc[0, "age"] = -9
    refused = CliRunner().invoke(app, ["check", str(write(tmp_path, table, more=AGE)), "--json"])
    assert refused.exit_code == 2
    found = json.loads(refused.stdout)
    assert found[0]["severity"] == "error"
    assert set(found[0]) == {"severity", "code", "where", "message", "remedy"}


def test_findings_about_outcomes_stay_out_of_the_dictionary(tmp_path: Path) -> None:
    """What a hypothesis is drafted with is the same, whether or not a variable leaks."""
    table = patients(300)
    table["marker"] = np.arange(300)
    leaking = table.assign(marker=table["months"].rank().to_numpy() - 1)
    views = [
        load(tmp_path / name, item).dictionary().model_dump(mode="json", exclude={"endpoints"})
        for name, item in (("honest", table), ("leaking", leaking))
    ]
    assert views[0] == views[1]

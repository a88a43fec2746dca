"""Sound and flawed analyses of the same kind, as folders and claims written by an analyst.

Each kind is a pair. In the flawed analysis the exposure has no effect, but an analysis
step makes an effect appear; the sound analysis has a true effect and performs that
step correctly. Patients are drawn only with numpy and pandas. A flaw that depends on
chance (a search, a switch) is drawn until its best result is significant, as only such
results are written up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.core.seeds import generator

Table = pd.DataFrame
TRUE = 0.9
"""Log hazard ratio for a true effect between halves; .45 per standard deviation."""


@dataclass(frozen=True)
class Step:
    """Claims that are registered together on a table.

    `endpoints` map names to the columns for time and event (and entry); `late` has the
    `known_at` of variables that became known later, in TOML. All other columns are variables
    known at baseline, except those in `hidden`.
    """

    table: Table
    claims: tuple[dict[str, Any], ...]
    endpoints: Mapping[str, tuple[str, ...]] = field(
        default_factory=lambda: {"OS": ("time", "dead")}
    )
    late: dict[str, str] = field(default_factory=dict)
    hidden: tuple[str, ...] = ()


Analysis = tuple[Step, ...]
"""Steps in order; if the last has several claims, the best of them is reported."""


def claim(exposure: str = "marker", **more: Any) -> dict[str, Any]:
    """Describe the claim that higher values mean shorter survival, adjusted for age and sex."""
    own = {key: more.pop(key) for key in ("level", "cut", "threshold") if key in more}
    cut = own.setdefault("cut", "median")
    names = "-".join(str(value) for value in (exposure, *own.values(), *more.values()))
    return {
        "id": "".join(char if char.isalnum() else "-" for char in names)[:60],
        "population": {"description": "all patients"},
        "exposures": [{"variable": f"clinical:{exposure}", "label": exposure, **own}],
        "comparison": "per_sd" if cut == "continuous" else "exposed_vs_rest",
        "endpoint": "OS",
        "direction": "higher_risk",
        "covariates": ["clinical:age", "clinical:sex"],
        **more,
    }


def patients(rng: np.random.Generator, n: int = 400) -> Table:
    """Draw patients with age, sex, stage and a marker that has no effect."""
    return pd.DataFrame({
        "patient": [f"N{number:05d}" for number in rng.permutation(10 * n)[:n]],
        "age": rng.normal(64, 10, n).round(1),
        "sex": rng.choice(["f", "m"], n),
        "stage": rng.integers(1, 5, n),
        "marker": rng.normal(size=n).round(4),
    })  # fmt: skip


def follow(
    table: Table, risk: Any, rng: np.random.Generator, name: str = "", median: float = 40.0
) -> Table:
    """Draw months to event or censoring, with log hazard `risk` in addition to age and stage."""
    log_hazard = risk + 0.25 * (table["age"] - 64) / 10 + 0.35 * (table["stage"] - 2.5)
    event = rng.exponential(median / np.log(2) / np.exp(log_hazard - np.mean(log_hazard)))
    stop = rng.uniform(12, 96, len(table))
    if name and "time" in table:  # nothing is seen after death
        stop = table["time"].to_numpy()
    time = np.minimum(event, stop).clip(0.1).round(2)
    return table.assign(**{f"{name}time": time, f"{name}dead": (event <= stop).astype(int)})


def halves(values: Any) -> Any:
    """Code values in the upper half as 1."""
    return (values > np.median(values)).astype(float)


def plain(rng: np.random.Generator, log_hr: float = TRUE) -> Table:
    """Draw patients in whom the marker's upper half has this log hazard ratio."""
    table = patients(rng)
    return follow(table, log_hr * halves(table["marker"]), rng)


def sound(rng: np.random.Generator) -> Analysis:
    """Register a single claim about a true effect."""
    return (Step(plain(rng), (claim(),)),)


# -- time ------------------------------------------------------------------------------------------


def _immortal(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng)
    wait, meant = rng.exponential(14, len(table)), rng.random(len(table)) < 0.7
    hazard = np.log(2) / 40 * np.exp(0.35 * (table["stage"] - 2.5))
    need = rng.exponential(size=len(table))
    event = np.where((need <= hazard * wait) | ~meant, need / hazard,
                     wait + (need - hazard * wait) / (hazard * np.exp(log_hr)))  # fmt: skip
    stop = rng.uniform(12, 96, len(table))
    time, treated = np.minimum(event, stop).clip(0.1).round(2), meant & (wait < event)
    treated &= wait < stop
    return table.assign(time=time, dead=(event <= stop).astype(int),
                        second_line=np.where(treated, "yes", "no"),
                        wait=np.where(treated, wait.round(2), np.nan))  # fmt: skip


def immortal_flawed(rng: np.random.Generator) -> Analysis:
    """Compare patients who ever received second-line treatment with others, from diagnosis on."""
    given = claim("second_line", direction="lower_risk")
    return (Step(_immortal(rng, 0.0), (given,), hidden=("wait",)),)


def immortal_sound(rng: np.random.Generator) -> Analysis:
    """Count patients as treated from the day of treatment onward."""
    given = claim("second_line", direction="lower_risk", time_dependent=True)
    late = {"second_line": '{ column = "wait", unit = "months", before = "no" }'}
    return (Step(_immortal(rng, -TRUE), (given,), late=late, hidden=("wait",)),)


def _response(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng)
    would = rng.random(len(table)) < 0.5
    table = follow(table, log_hr * would, rng, median=14)
    return table.assign(response=np.where(would & (table["time"] > 3), "yes", "no"))


def response_flawed(rng: np.random.Generator) -> Analysis:
    """Compare responders at three months with all others from the start of treatment."""
    return (Step(_response(rng, 0.0), (claim("response", direction="lower_risk"),)),)


def response_sound(rng: np.random.Generator) -> Analysis:
    """Compare responders with others among patients alive at three months, from then on."""
    given = claim("response", direction="lower_risk", landmark=3)
    step = Step(_response(rng, -TRUE), (given,), late={"response": "3"})
    return (step,)


def _entered(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng, 900)
    exposed = rng.random(len(table)) < 0.5
    table = follow(table, log_hr * exposed, rng, median=24)
    enrolled = rng.uniform(0, np.where(exposed, 30, 6)).round(2)
    table = table.assign(carrier=np.where(exposed, "yes", "no"), enrolled=enrolled)
    return table[table["time"] > table["enrolled"]].head(450).reset_index(drop=True)


def entry_flawed(rng: np.random.Generator) -> Analysis:
    """Count time from diagnosis, although carriers were enrolled long afterward."""
    given = claim("carrier", direction="lower_risk")
    return (Step(_entered(rng, 0.0), (given,), hidden=("enrolled",)),)


def entry_sound(rng: np.random.Generator) -> Analysis:
    """Declare the time of each patient's enrollment."""
    ends = {"OS": ("time", "dead", "enrolled")}
    given = claim("carrier", direction="lower_risk")
    return (Step(_entered(rng, -TRUE), (given,), endpoints=ends),)


def crossing_flawed(rng: np.random.Generator) -> Analysis:
    """Report a single hazard ratio for a treatment that harms early and helps late."""
    table = patients(rng, 500)
    exposed = rng.random(len(table)) < 0.5
    need = rng.exponential(size=len(table)) / np.exp(0.35 * (table["stage"] - 2.5))
    early, late = 0.035 * 2.6, 0.035 * 0.4
    event = np.where(exposed, np.where(need < 14 * early, need / early,
                                       14 + (need - 14 * early) / late), need / 0.035)  # fmt: skip
    stop = rng.uniform(12, 96, len(table))
    table = table.assign(time=np.minimum(event, stop).clip(0.1).round(2),
                         dead=(event <= stop).astype(int),
                         arm=np.where(exposed, "yes", "no"))  # fmt: skip
    return (Step(table, (claim("arm"),)),)


def truncated_flawed(rng: np.random.Generator) -> Analysis:
    """Truncate follow-up at 18 months after the full follow-up showed nothing."""
    table = plain(rng, 0.0)
    whole = Step(table, (claim(),))
    return whole, Step(_until(table, 18), (claim(),))


def truncated_sound(rng: np.random.Generator) -> Analysis:
    """Register survival to 36 months from the outset."""
    return (Step(_until(plain(rng), 36), (claim(),)),)


def _until(table: Table, months: float) -> Table:
    over = table["time"] > months
    return table.assign(time=table["time"].clip(upper=months), dead=table["dead"].where(~over, 0))


# -- searches --------------------------------------------------------------------------------------


def cut_flawed(rng: np.random.Generator) -> Analysis:
    """Test five thresholds and report the best."""
    table = plain(rng, 0.0)
    cuts = table["marker"].quantile([0.2, 0.35, 0.5, 0.65, 0.8]).round(3)
    return (Step(table, tuple(claim(cut="fixed", threshold=float(cut)) for cut in cuts)),)


def cut_sound(rng: np.random.Generator) -> Analysis:
    """Search for the cut-point, with a p-value that accounts for the search."""
    table = patients(rng)
    table = follow(table, TRUE * (table["marker"] > 0.7), rng)
    return (Step(table, (claim(cut="optimal", comparison="per_sd"),)),)


def subgroup_flawed(rng: np.random.Generator) -> Analysis:
    """Test five subgroups and report the best."""
    values = [("sex", "f"), ("sex", "m"), ("stage", 1), ("stage", 4), ("stage", 3)]
    groups = (
        {"description": f"{key} {value}",
         "filters": [{"variable": f"clinical:{key}", "op": "eq", "value": value}]}
        for key, value in values
    )  # fmt: skip
    return (Step(plain(rng, 0.0), tuple(claim(population=group) for group in groups)),)


def subgroup_sound(rng: np.random.Generator) -> Analysis:
    """Register only men, in whom the marker has an effect."""
    table = patients(rng, 600)
    table = follow(table, TRUE * halves(table["marker"]) * (table["sex"] == "m"), rng)
    filters = [{"variable": "clinical:sex", "op": "eq", "value": "m"}]
    return (Step(table, (claim(population={"description": "men", "filters": filters}),)),)


def endpoint_flawed(rng: np.random.Generator) -> Analysis:
    """Switch to recurrence, then to metastasis, after survival showed nothing."""
    table = plain(rng, 0.0)
    for name in ("recurrence_", "metastasis_"):
        table = follow(table, 0.0 * table["age"], rng, name)
    ends = {"OS": ("time", "dead"), "REC": ("recurrence_time", "recurrence_dead"),
            "MET": ("metastasis_time", "metastasis_dead")}  # fmt: skip
    first = Step(table, (claim(),), endpoints=ends)
    later = tuple(claim(endpoint=name) for name in ("REC", "MET"))
    return first, replace(first, claims=later)


def padding_flawed(rng: np.random.Generator) -> Analysis:
    """Register four markers without effect among three known truths, and report the best marker."""
    table = patients(rng).assign(**{f"m{at}": rng.normal(size=400).round(4) for at in range(4)})
    table = follow(table, 0.8 * halves(table["marker"]), rng)
    truths = tuple(claim(name, covariates=["clinical:sex"]) for name in ("stage", "age", "marker"))
    fished = tuple(claim(f"m{at}") for at in range(4))
    return Step(table, truths), Step(table, fished)


def padding_sound(rng: np.random.Generator) -> Analysis:
    """Register two markers that both have an effect."""
    table = patients(rng).assign(second=rng.normal(size=400).round(4))
    table = follow(table, TRUE * (halves(table["marker"]) + halves(table["second"])), rng)
    return (Step(table, (claim(), claim("second"))),)


def duplicate_flawed(rng: np.random.Generator) -> Analysis:
    """Repeat the failed claim with a renamed, log-scaled marker and times in whole months."""
    table = plain(rng, 0.0)
    again = table.assign(
        score=np.exp(0.5 * table["marker"] + 3).round(2),
        patient=[f"R{at}" for at in range(len(table))],
        time=table["time"].clip(lower=1).round(),
    ).drop(columns="marker")
    cuts = ({"cut": "continuous"}, {"cut": "tertile"})
    steps = (claim("score", **cut) for cut in cuts)
    return Step(table, (claim(),)), Step(again.sample(frac=1, random_state=1), tuple(steps))


# -- confounding and selection ---------------------------------------------------------------------


def _confounded(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng)
    frailty = rng.normal(size=len(table))
    table["marker"] = (0.7 * frailty + 0.7 * rng.normal(size=len(table))).round(4)
    table["performance"] = frailty.round(2)
    return follow(table, log_hr * halves(table["marker"]) + 0.8 * frailty, rng)


def confounder_flawed(rng: np.random.Generator) -> Analysis:
    """Leave the performance score, which is in the cohort, out of the model."""
    return (Step(_confounded(rng, 0.0), (claim(),)),)


def confounder_sound(rng: np.random.Generator) -> Analysis:
    """Adjust for the performance score."""
    held = ["clinical:age", "clinical:sex", "clinical:performance"]
    return (Step(_confounded(rng, 1.2), (claim(covariates=held),)),)


def _clinics(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng, 500)
    code = rng.integers(0, 6, len(table))
    table["marker"] = (0.5 * (code - 2.5) + rng.normal(size=len(table))).round(4)
    table["unit"] = [f"U{number}" for number in code]
    return follow(table, log_hr * halves(table["marker"]) + 0.45 * (code - 2.5), rng)


def site_flawed(rng: np.random.Generator) -> Analysis:
    """Ignore differences in assay and survival between hospital units."""
    return (Step(_clinics(rng, 0.0), (claim(),)),)


def site_sound(rng: np.random.Generator) -> Analysis:
    """Compare patients within hospital units."""
    return (Step(_clinics(rng, 1.1), (claim(strata=["clinical:unit"]),)),)


def _referred(rng: np.random.Generator, log_hr: float) -> Table:
    table = patients(rng, 600)
    frailty = rng.normal(size=len(table))
    referred = -1.2 * table["marker"] + 1.2 * frailty + 0.5 * rng.normal(size=len(table)) > 0
    table["referred"] = np.where(referred, "yes", "no")
    return follow(table, log_hr * halves(table["marker"]) + 0.9 * frailty, rng)


def collider_flawed(rng: np.random.Generator) -> Analysis:
    """Adjust for referral, which is caused by both a low marker and frailty."""
    held = ["clinical:age", "clinical:referred"]
    return (Step(_referred(rng, 0.0), (claim(covariates=held),)),)


def collider_sound(rng: np.random.Generator) -> Analysis:
    """Draw referral as an effect of the marker, and leave it out."""
    causes = ["clinical:age -> OS", "clinical:marker -> OS", "clinical:sex -> OS",
              "clinical:stage -> OS", "clinical:marker -> clinical:referred"]  # fmt: skip
    return (Step(_referred(rng, 1.1), (claim(causes=causes, covariates=[]),)),)


def copies_flawed(rng: np.random.Generator) -> Analysis:
    """Include every patient three times, under new identifiers."""
    table = plain(rng, 0.0)
    table = pd.concat([table.assign(patient=table["patient"] + end) for end in "abc"])
    return (Step(table.sample(frac=1, random_state=1), (claim(),)),)


def _lost(rng: np.random.Generator, log_hr: float, informative: bool) -> Table:
    table = plain(rng, log_hr)
    lucky = (table["marker"] > table["marker"].median()) & (table["time"] > table["time"].median())
    gone = rng.random(len(table)) < np.where(lucky if informative else True, 0.65, 0.0) * (
        1.0 if informative else 0.3
    )
    return table.assign(
        time=table["time"].where(~gone), dead=table["dead"].where(~gone).astype("Int64")
    )


def missing_flawed(rng: np.random.Generator) -> Analysis:
    """Drop patients without an outcome: long survivors with a high marker."""
    return (Step(_lost(rng, 0.0, True), (claim(),)),)


def missing_sound(rng: np.random.Generator) -> Analysis:
    """Drop patients without an outcome, lost by chance."""
    return (Step(_lost(rng, TRUE, False), (claim(),)),)


def leak_flawed(rng: np.random.Generator) -> Analysis:
    """Treat weight loss at the last visit as a baseline value."""
    table = plain(rng, 0.0)
    loss = 1.8 * table["dead"] - 0.4 * np.log(table["time"]) + rng.normal(size=len(table))
    return (Step(table.assign(marker=loss.round(3)), (claim(),)),)


def _compete(rng: np.random.Generator, log_hr: float, log_other: float) -> Table:
    table = patients(rng, 500)
    side = halves(table["marker"])
    table = follow(table, log_hr * side, rng, "relapse_", median=36)
    other = rng.exponential(60 / np.exp(log_other * side)).round(2)
    first = other < table["relapse_time"]
    return table.assign(
        time=np.minimum(table["relapse_time"], other).clip(0.1),
        dead=np.where(first, 1, 0),
        relapse_time=np.where(first, 96.0, table["relapse_time"]),
        relapse_dead=np.where(first, 0, table["relapse_dead"]),
    )


def competing_flawed(rng: np.random.Generator) -> Analysis:
    """Count deaths as relapse-free to the study end, though a high marker raises mortality."""
    ends = {"OS": ("time", "dead"), "RELAPSE": ("relapse_time", "relapse_dead")}
    given = claim(endpoint="RELAPSE", direction="lower_risk")
    return (Step(_compete(rng, 0.0, 1.6), (given,), endpoints=ends),)


def competing_sound(rng: np.random.Generator) -> Analysis:
    """Count patients who died as followed until death."""
    table = _compete(rng, -TRUE, 0.0)
    table["relapse_time"] = table["relapse_time"].clip(upper=table["time"])
    ends = {"OS": ("time", "dead"), "RELAPSE": ("relapse_time", "relapse_dead")}
    given = claim(endpoint="RELAPSE", direction="lower_risk")
    return (Step(table, (given,), endpoints=ends),)


def _score(rng: np.random.Generator, acts: float, n: int, trained: int) -> Table:
    """Train a twelve-gene score by least squares in other patients, or in these."""
    table = patients(rng, n + trained)
    genes = rng.normal(size=(n + trained, 12))
    table = follow(table, acts * genes[:, :4].sum(axis=1), rng)
    known = slice(n, None) if trained else slice(None)
    sign = (table["dead"] - 0.5 - 0.4 * np.log(table["time"])).to_numpy()
    weights = np.linalg.lstsq(genes[known], sign[known] - sign[known].mean(), rcond=None)[0]
    return table.assign(marker=(genes @ weights).round(4)).head(n)


def overfit_flawed(rng: np.random.Generator) -> Analysis:
    """Test a twelve-gene score in the 60 patients in whom it was trained."""
    return (Step(_score(rng, 0.0, 60, 0), (claim(cut="continuous"),)),)


def overfit_sound(rng: np.random.Generator) -> Analysis:
    """Test the score in 300 patients who took no part in training."""
    return (Step(_score(rng, 0.4, 300, 300), (claim(cut="continuous"),)),)


Draw = Callable[[np.random.Generator], Analysis]
PAIRS: dict[str, tuple[Draw, Draw]] = {
    "immortal time": (immortal_flawed, immortal_sound),
    "post-baseline exposure": (response_flawed, response_sound),
    "delayed entry ignored": (entry_flawed, entry_sound),
    "crossing hazards": (crossing_flawed, sound),
    "truncated follow-up": (truncated_flawed, truncated_sound),
    "cut searched": (cut_flawed, cut_sound),
    "subgroup fished": (subgroup_flawed, subgroup_sound),
    "endpoint switched": (endpoint_flawed, sound),
    "ledger padded": (padding_flawed, padding_sound),
    "claim duplicated": (duplicate_flawed, sound),
    "confounder dropped": (confounder_flawed, confounder_sound),
    "site confounding": (site_flawed, site_sound),
    "collider": (collider_flawed, collider_sound),
    "copies of patients": (copies_flawed, sound),
    "missing outcome dropped": (missing_flawed, missing_sound),
    "outcome in the exposure": (leak_flawed, sound),
    "competing risk ignored": (competing_flawed, competing_sound),
    "small sample overfit": (overfit_flawed, overfit_sound),
}


def draw_pair(kind: str, flawed: bool, seed: int, attempt: int = 0) -> Analysis:
    """Draw the flawed or sound analysis of a kind; each attempt has different patients."""
    place = 2 * list(PAIRS).index(kind) + flawed
    return PAIRS[kind][0 if flawed else 1](generator(seed, place, attempt))


def write_step(folder: Path, step: Step) -> None:
    """Write a step's table and `cohort.toml`."""
    folder.mkdir(parents=True)
    step.table.to_csv(folder / "clinical.csv", index=False)
    text = (
        'id = "series"\ntitle = "SIMULATED series"\nsimulated = true\n'
        'patient = { table = "clinical" }\n\n[tables.clinical]\nfile = "clinical.csv"\n'
        'key = "patient"\nknown_at = "baseline"\n'
    )
    if "stage" in step.table:
        text = f'risk_factors = ["clinical:stage"]\n{text}'
    for name, columns in step.endpoints.items():
        text += (
            f'\n[endpoints.{name}]\nkind = "survival"\ntable = "clinical"\ntime = "{columns[0]}"\n'
            f'time_unit = "months"\nevent = "{columns[1]}"\nevent_values = [1]\n'
            f'censored_values = [0]\nlabel = "{name}"\n'
        )
        text += f'entry = "{columns[2]}"\n' if len(columns) > 2 else ""
    ends = {column for columns in step.endpoints.values() for column in columns}
    for name in step.table.columns.difference(["patient", *ends, *step.hidden], sort=False):
        values = step.table[name]
        number = pd.api.types.is_numeric_dtype(values)
        few = "binary" if values.nunique() == 2 else "categorical"
        kind = ("ordinal" if values.nunique() < 6 else "continuous") if number else few
        text += f'\n[variables.{name}]\ntable = "clinical"\ncolumn = "{name}"\nkind = "{kind}"\n'
        text += f"label = {json.dumps(name)}\n"
        text += f"known_at = {step.late[name]}\n" if name in step.late else ""
    (folder / "cohort.toml").write_text(text, encoding="utf-8")

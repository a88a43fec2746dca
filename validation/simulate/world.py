"""A simulated bladder cohort written as an ordinary cohort folder, with its truth.

The folder reads like any other (`cohort.toml`, CSV tables, slides); `cohort.toml`
declares `simulated = true`, patients are called SIM-0001 and so on, and the truth is
stored only in `truth.json` and `PLANTED.md`, which no cohort reader opens.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.seeds import generator
from validation.simulate.effects import Effects
from validation.simulate.genes import FACTORS, expression, factors, gene_table
from validation.simulate.layout import cohort_toml
from validation.simulate.slide import SlideTruth, render_slide
from validation.statistics.base import BoolArray, FloatArray

FOLLOW_UP_DAYS = 3650.0


@dataclass(frozen=True)
class _Patients:
    """Complete patient data, before any values are made missing."""

    ids: list[str]
    male: FloatArray
    age: FloatArray
    stage: FloatArray
    latent: FloatArray
    symbols: tuple[str, ...]
    expression: FloatArray
    tls_density: FloatArray
    til_density: FloatArray
    stroma: FloatArray
    margin: FloatArray


def write_world(
    folder: Path,
    *,
    seed: int,
    patients: int = 400,
    effects: Effects | None = None,
    null: bool = False,
    slides: int = 0,
    slide_px: int = 2048,
) -> Path:
    """Write a simulated cohort and return its folder.

    Parameters
    ----------
    folder : created if absent; must be empty
    seed : random seed; the same seed gives identical bytes
    effects : the effects to plant (default: `Effects()`)
    null : plant no biomarker effects; stage and age keep theirs, so that the known-positive
        control can detect them (pass `Effects.nothing()` for a world without even those)
    slides : number of patients with a rendered slide, which has as many lymphoid aggregates
        as their `tls_density` implies for its tissue area

    Raises
    ------
    InputError
        If the folder contains files, or there are fewer than 40 patients.
    """
    if patients < 40:
        raise InputError(f"write_world: {patients} patients are too few; use at least 40")
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"write_world: {folder} is not empty; choose a new folder")
    if not 0 <= slides <= patients:
        raise InputError(f"write_world: got {slides} slides for {patients} patients")
    if slides:
        require_extra("slides", "painting slides")
    folder.mkdir(parents=True, exist_ok=True)
    true = effects or Effects()
    if null:
        true = true.without_biomarkers()
    rng = generator(seed)
    people = _people(patients, true, rng)
    joint = _joint_group(people)
    outcome = _outcomes(people, joint, true, rng)
    painted = _slides(folder, people, slides, slide_px, seed)
    _write_tables(folder, people, outcome, painted, rng)
    truth = _truth(people, joint, true, seed, null, painted)
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    (folder / "PLANTED.md").write_text(_planted_text(truth), encoding="utf-8")
    (folder / "cohort.toml").write_text(
        cohort_toml(seed, patients, bool(painted)), encoding="utf-8"
    )
    return folder


def _people(n: int, true: Effects, rng: np.random.Generator) -> _Patients:
    male = (rng.random(n) < 0.74).astype(np.float64)
    age = np.clip(rng.normal(68.0, 10.5, n), 34.0, 90.0).round()
    latent = factors(n, rng)
    stage_factor = rng.standard_normal(n)
    c = true.confounding
    basal = FACTORS.index("basal")
    latent[:, basal] = c * stage_factor + np.sqrt(1.0 - c * c) * latent[:, basal]
    stage = np.asarray(2.0 + (stage_factor > -0.45) + (stage_factor > 0.45), dtype=np.float64)
    symbols, values = expression(gene_table(rng), latent, male, rng)
    tls = latent[:, FACTORS.index("tls")]
    seen = 0.8 * tls + 0.6 * rng.standard_normal(n)
    density = np.asarray(
        np.where(seen < -0.9, 0.0, np.exp(0.1 + 0.75 * seen)).round(3), dtype=np.float64
    )
    til = np.exp(6.4 + 0.7 * (0.8 * latent[:, 1] + 0.6 * rng.standard_normal(n))).round(1)
    stroma = 1.0 / (1.0 + np.exp(-(-0.4 + 0.8 * latent[:, 3] + 0.4 * rng.standard_normal(n))))
    margin = np.exp(0.3 * (0.7 * latent[:, 1] + 0.7 * rng.standard_normal(n))).round(3)
    ids = [f"SIM-{i + 1:04d}" for i in range(n)]
    return _Patients(
        ids,
        male,
        age,
        stage,
        latent,
        symbols,
        values,
        density,
        til,
        np.asarray(stroma.round(3), dtype=np.float64),
        margin,
    )


def _gene(people: _Patients, name: str) -> FloatArray:
    return np.asarray(people.expression[:, people.symbols.index(name)], dtype=np.float64)


def _scaled(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / values.std(), dtype=np.float64)


def _joint_group(people: _Patients) -> BoolArray:
    fabp5 = _gene(people, "FABP5")
    return np.asarray(
        (fabp5 > np.median(fabp5)) & (people.tls_density <= np.median(people.tls_density)),
        dtype=np.bool_,
    )


def _outcomes(
    people: _Patients, joint: BoolArray, true: Effects, rng: np.random.Generator
) -> dict[str, Any]:
    n = len(people.ids)
    biomarkers = (
        np.log(true.fabp5_high_tls_low_hr) * joint
        + np.log(true.cxcl13_per_sd_hr) * _scaled(_gene(people, "CXCL13"))
        + np.log(true.adrm1_per_sd_hr_in_men) * _scaled(_gene(people, "ADRM1")) * people.male
        + np.log(true.til_per_sd_hr) * _scaled(np.log(people.til_density))
    )
    clinical = (
        np.log(true.stage_iii_hr) * (people.stage == 3)
        + np.log(true.stage_iv_hr) * (people.stage == 4)
        + np.log(true.age_per_decade_hr) * (people.age - 68.0) / 10.0
    )
    risk = biomarkers + clinical
    risk = risk - risk.mean()
    death = rng.exponential(1500.0, n) * np.exp(-risk)
    progression = rng.exponential(1900.0, n) * np.exp(-risk)
    leave = np.minimum(rng.uniform(300.0, FOLLOW_UP_DAYS, n), rng.exponential(6000.0, n) + 60.0)
    died = death <= leave
    os_days = np.maximum(np.minimum(death, leave).round(), 1.0)
    first = np.minimum(progression, death)
    pfi_days = np.minimum(np.maximum(np.minimum(first, leave).round(), 1.0), os_days)
    of_tumor = rng.random(n) < 0.8
    odds = np.log(true.fabp5_high_tls_low_nodes_or) * joint + 0.7 * (people.stage == 4) - 0.9
    nodes = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-odds)), "N+", "N0")
    return {
        "OS.time": os_days,
        "OS": died.astype(int),
        "PFI.time": pfi_days,
        "PFI": (first <= leave).astype(int),
        "DSS.time": os_days,
        "DSS": (died & of_tumor).astype(int),
        "cause_of_death": np.where(died, np.where(of_tumor, "tumor", "other"), "alive"),
        "nodes": np.where(rng.random(n) < 0.1, "NX", nodes),
    }


def _slides(
    folder: Path, people: _Patients, count: int, size_px: int, seed: int
) -> list[SlideTruth]:
    """Render the first patients' slides, with the aggregates implied by their density."""
    if count == 0:
        return []
    (folder / "slides").mkdir()
    (folder / "outlines").mkdir()
    painted = []
    mpp = 0.5
    for i in range(count):
        path = folder / "slides" / f"{people.ids[i]}.tiff"
        tissue = 0.72 * (size_px * mpp / 1000.0) ** 2
        wanted = min(round(float(people.tls_density[i]) * tissue), 8)
        truth = render_slide(
            path, seed=seed * 1000 + i, size_px=size_px, mpp=mpp, aggregates=wanted
        )
        truth.write(path.with_suffix(".truth.json"))
        truth.write_outlines(folder / "outlines" / f"{people.ids[i]}.geojson")
        painted.append(truth)
    return painted


def _write_tables(
    folder: Path,
    people: _Patients,
    outcome: dict[str, Any],
    painted: list[SlideTruth],
    rng: np.random.Generator,
) -> None:
    n = len(people.ids)
    roman = {2.0: "Stage II", 3.0: "Stage III", 4.0: "Stage IV"}
    clinical = pd.DataFrame(
        {
            "patient": people.ids,
            "simulated": "yes",
            "age": people.age.astype(int),
            "gender": np.where(people.male > 0.5, "MALE", "FEMALE"),
            "stage": [roman[s] for s in people.stage],
            "grade": np.where(rng.random(n) < 0.94, "High Grade", "Low Grade"),
            "smoking": np.where(rng.random(n) < 0.7, "ever", "never"),
            "subtype": np.where(people.latent[:, 2] > 0.2, "basal", "luminal"),
            **outcome,
        }
    )
    clinical.loc[rng.random(n) < 0.02, "stage"] = ""
    clinical.loc[rng.random(n) < 0.06, "smoking"] = ""
    clinical.to_csv(folder / "clinical.csv", index=False)
    table = pd.DataFrame(people.expression.round(4), columns=list(people.symbols))
    table.insert(0, "patient", people.ids)
    table[rng.random(n) >= 0.02].to_csv(folder / "expression.csv", index=False)
    imaging = pd.DataFrame(
        {
            "patient": people.ids,
            "tls_density": people.tls_density,
            "til_density": people.til_density,
            "stroma_fraction": people.stroma,
            "til_margin_enrichment": people.margin,
        }
    )
    imaging[rng.random(n) >= 0.05].to_csv(folder / "imaging.csv", index=False)
    if painted:
        rows = {
            "patient": [Path(s.path).stem for s in painted],
            "file": [f"slides/{Path(s.path).name}" for s in painted],
        }
        pd.DataFrame(rows).to_csv(folder / "slides.csv", index=False)


def _truth(
    people: _Patients,
    joint: BoolArray,
    true: Effects,
    seed: int,
    null: bool,
    painted: list[SlideTruth],
) -> dict[str, Any]:
    fabp5 = _gene(people, "FABP5")
    return {
        "simulated": True,
        "seed": seed,
        "null": null,
        "patients": len(people.ids),
        "effects": asdict(true),
        "joint_group": {
            "definition": "FABP5 above and tls_density at or below the median of all patients",
            "fabp5_median": float(np.median(fabp5)),
            "tls_density_median": float(np.median(people.tls_density)),
            "n": int(joint.sum()),
        },
        "outcome_model": "hazard of death and of progression: baseline x exp(sum of log hazard"
        " ratios); exponential baseline; uniform and exponential censoring",
        "slides": [
            {
                "file": f"slides/{Path(s.path).name}",
                "tissue_mm2": round(s.tissue_mm2, 4),
                "mpp": s.mpp,
                "aggregates": [
                    {"x": round(a.x, 1), "y": round(a.y, 1), "radius": round(a.radius, 1),
                     "lymphocytes": a.lymphocytes}
                    for a in s.aggregates
                ],
                "tumor_nuclei": len(s.tumor_nuclei),
                "stroma_nuclei": len(s.stroma_nuclei),
                "lymphocytes": len(s.lymphocytes),
            }
            for s in painted
        ],
    }  # fmt: skip


PLANTED = {
    "fabp5_high_tls_low_hr": "Hazard ratio of high FABP5 with low TLS density",
    "fabp5_high_tls_low_nodes_or": "Odds ratio of positive nodes, high FABP5 with low TLS density",
    "cxcl13_per_sd_hr": "Hazard ratio per SD of CXCL13",
    "adrm1_per_sd_hr_in_men": "Hazard ratio per SD of ADRM1, in men",
    "til_per_sd_hr": "Hazard ratio per SD of the density of lymphocytes",
    "stage_iii_hr": "Hazard ratio of stage III against stage II",
    "stage_iv_hr": "Hazard ratio of stage IV against stage II",
    "age_per_decade_hr": "Hazard ratio per decade of age",
    "confounding": "Correlation of FABP5 and the keratins with stage",
}
"""Descriptions of `Effects`, for people who read the folder."""


def _planted_text(truth: dict[str, Any]) -> str:
    lines = [
        "# SIMULATED cohort",
        "",
        "No row or slide of this folder comes from a real patient. Planted effects, on death and",
        "on progression unless stated otherwise; a ratio of 1 means that there is none:",
        "",
    ]
    lines += [f"- {PLANTED[name]}: {value:g}" for name, value in truth["effects"].items()]
    lines.append("")
    lines += (
        ["This is a null world: no biomarker is related to any outcome."]
        if truth["null"]
        else [
            "Nothing else has an effect. Other variables are related to the outcome because they",
            "vary with one that has an effect: B-cell genes and chemokines such as CCL21 rise with",
            "CXCL13, and so does TLS density, whose own effect is that with high FABP5. A claim",
            "about them can be right as an association and wrong as a cause.",
        ]
    )
    return "\n".join(lines) + "\n"

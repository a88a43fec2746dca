"""Worlds that mislead an honest method, each of which violates a single assumption on purpose.

A hostile world is an ordinary simulated cohort with altered clinical course or
measurements, and a hypothesis. In all kinds except `planted` and `planted among
prognostic genes` the exposure has no effect, so that "supported" is a false claim.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from sage.core.seeds import generator
from validation.core.hypothesis import (
    Comparison,
    CutRule,
    Direction,
    Exposure,
    Hypothesis,
    Population,
)
from validation.simulate.effects import Effects
from validation.simulate.layout import TABLES, survival_toml, variable_toml
from validation.simulate.world import FOLLOW_UP_DAYS, write_world
from validation.statistics.base import FloatArray, IntArray

if TYPE_CHECKING:
    import pandas as pd

IDLE = "SIMGENE002"
"""A gene that belongs to no module and is independent of all other genes."""
CONFOUNDED = "FABP5"
"""A gene in the module that `Effects.confounding` associates with stage."""
PLANTED_PER_SD = 1.5
SITES = 12
USUAL = ("clinical:age", "clinical:gender", "clinical:stage")


@dataclass
class Tables:
    """A world's tables while they are modified; `extra` lists additional clinical columns."""

    clinical: pd.DataFrame
    expression: pd.DataFrame
    extra: list[str]


@dataclass(frozen=True)
class Kind:
    """A kind of world.

    `disturb` modifies the finished tables; `true` marks kinds in which the exposure has an
    effect. `covariates` are the registered covariates; if there are none, the contract's
    rules choose.
    """

    name: str
    summary: str
    exposure: str = f"expression:{IDLE}"
    confounding: float = 0.0
    patients: int = 400
    true: bool = False
    covariates: tuple[str, ...] = ()
    disturb: Callable[[Tables, np.random.Generator], None] | None = None


def hypothesis(kind: Kind, seed: int) -> Hypothesis:
    """Return the claim that higher values mean shorter survival; even seeds split at the median."""
    split = seed % 2 == 0
    return Hypothesis(
        id=f"hostile-{seed}",
        statement=f"High {kind.exposure} marks shorter overall survival.",
        population=Population(description="all patients"),
        exposures=(
            Exposure(
                variable=kind.exposure,
                label="the exposure",
                cut=CutRule.MEDIAN if split else CutRule.CONTINUOUS,
            ),
        ),
        comparison=Comparison.EXPOSED_VS_REST if split else Comparison.PER_SD,
        endpoint="OS",
        direction=Direction.HIGHER_RISK,
        covariates=kind.covariates,
    )


def write_hostile(folder: Path, kind: Kind, seed: int) -> None:
    """Write a world of this kind to a new folder; the same seed gives the same world.

    Raises
    ------
    InputError
        If the folder is not empty.
    """
    import pandas as pd

    effects = replace(Effects().without_biomarkers(), confounding=kind.confounding)
    write_world(folder, seed=seed, patients=kind.patients, effects=effects)
    (folder / "imaging.csv").unlink()
    tables = Tables(
        pd.read_csv(folder / "clinical.csv", keep_default_na=False).set_index("patient"),
        pd.read_csv(folder / "expression.csv").set_index("patient"),
        [],
    )
    if kind.disturb is not None:
        kind.disturb(tables, generator(seed, 77))
        tables.clinical.reset_index().to_csv(folder / "clinical.csv", index=False)
        tables.expression.reset_index().to_csv(folder / "expression.csv", index=False)
    text = (
        "# SIMULATED: no patient stands behind any row of this folder.\n"
        f'id = "hostile-{seed}"\ntitle = "SIMULATED hostile world"\nsimulated = true\n'
        'risk_factors = ["clinical:stage", "clinical:age"]\n'
        + TABLES
        + survival_toml("OS")
        + variable_toml("age", "continuous", "Age")
        + variable_toml("gender", "binary", "Sex")
        + variable_toml("stage", "ordinal", "Stage")
        + "".join(tables.extra)
    )
    (folder / "cohort.toml").write_text(text, encoding="utf-8")


def _standardize(values: FloatArray) -> FloatArray:
    return np.asarray((values - values.mean()) / values.std(), dtype=np.float64)


def _follow(tables: Tables, more: FloatArray, rng: np.random.Generator) -> None:
    """Draw new deaths from the simulator's clinical risk and `more` (log hazard per patient)."""
    true, clinical = Effects(), tables.clinical
    n = len(clinical)
    age = clinical["age"].to_numpy(dtype=float)
    stage = clinical["stage"].to_numpy()
    risk = (
        np.log(true.stage_iii_hr) * (stage == "Stage III")
        + np.log(true.stage_iv_hr) * (stage == "Stage IV")
        + np.log(true.age_per_decade_hr) * (age - 68.0) / 10.0
        + more
    )
    death = rng.exponential(1500.0, n) * np.exp(-(risk - risk.mean()))
    leave = np.minimum(rng.uniform(300.0, FOLLOW_UP_DAYS, n), rng.exponential(6000.0, n) + 60.0)
    clinical["OS.time"] = np.maximum(np.minimum(death, leave).round(), 1.0)
    clinical["OS"] = (death <= leave).astype(int)


def _genes(tables: Tables) -> pd.DataFrame:
    """Return the expression of all patients, with each gene's mean where data are missing."""
    return tables.expression.reindex(tables.clinical.index).fillna(tables.expression.mean())


def _sites(tables: Tables, rng: np.random.Generator) -> None:
    """Make sites differ randomly in survival and, gene by gene, in measured expression."""
    site = rng.integers(SITES, size=len(tables.clinical))
    tables.clinical["site"] = [f"S{number:02d}" for number in site]
    tables.extra.append(variable_toml("site", "categorical", "Site"))
    _follow(tables, rng.normal(0.0, 0.6, SITES)[site], rng)
    _shift(tables, site, rng, 0.8)


def _batch(tables: Tables, rng: np.random.Generator) -> None:
    """Raise most gene measurements in a later batch, and shorten its patients' survival."""
    batch = (rng.random(len(tables.clinical)) < 0.4).astype(int)
    tables.clinical["batch"] = np.where(batch == 1, "B2", "B1")
    tables.extra.append(variable_toml("batch", "categorical", "Batch"))
    _follow(tables, 0.9 * batch, rng)
    sd = tables.expression.std()
    mine = batch[tables.clinical.index.get_indexer(tables.expression.index)]
    step = np.abs(rng.normal(1.6, 0.4, tables.expression.shape[1])) * sd.to_numpy()
    tables.expression += mine[:, None] * step[None, :]


def _shift(tables: Tables, group: IntArray, rng: np.random.Generator, size: float) -> None:
    """Shift each gene in each group by a random offset, `size` standard deviations wide."""
    mine = group[tables.clinical.index.get_indexer(tables.expression.index)]
    offsets = rng.normal(0.0, size, (int(group.max()) + 1, tables.expression.shape[1]))
    tables.expression += offsets[mine] * tables.expression.std().to_numpy()


def _prognostic(own: float) -> Callable[[Tables, np.random.Generator], None]:
    """Make a fifth of all genes prognostic together, and give the exposure effect `own` per SD."""

    def disturb(tables: Tables, rng: np.random.Generator) -> None:
        genes = _genes(tables)
        names = [name for name in genes.columns if name != IDLE]
        acting = rng.choice(names, size=len(names) // 5, replace=False)
        shared = rng.standard_normal(len(genes))
        for name in acting:
            column = genes[name]
            genes[name] = column.mean() + column.std() * (
                np.sqrt(0.7) * _standardize(column.to_numpy()) + np.sqrt(0.3) * shared
            )
        tables.expression.loc[:, list(acting)] = genes.loc[
            tables.expression.index, list(acting)
        ].to_numpy()
        scaled = genes[list(acting)].apply(lambda gene: _standardize(gene.to_numpy()))
        score = _standardize(scaled.sum(axis=1).to_numpy())
        _follow(tables, 0.5 * score + own * _standardize(genes[IDLE].to_numpy()), rng)

    return disturb


def _plant(tables: Tables, rng: np.random.Generator) -> None:
    """Give the exposure an effect on survival without violating any assumption."""
    _follow(tables, np.log(PLANTED_PER_SD) * _standardize(_genes(tables)[IDLE].to_numpy()), rng)


def _proxy(known_at: str | None) -> Callable[[Tables, np.random.Generator], None]:
    """Add a value from the last visit, worse before death, but labeled as a baseline value."""

    def disturb(tables: Tables, rng: np.random.Generator) -> None:
        _last_visit(tables, rng, known_at)

    return disturb


def _last_visit(tables: Tables, rng: np.random.Generator, known_at: str | None) -> None:
    clinical = tables.clinical
    dead = clinical["OS"].to_numpy(dtype=float)
    time = clinical["OS.time"].to_numpy(dtype=float)
    clinical["status_last"] = (
        2.0 * dead - 0.5 * _standardize(np.log(time)) + rng.standard_normal(len(clinical))
    ).round(2)
    tables.extra.append(
        variable_toml("status_last", "continuous", "Performance status", known_at=known_at)
    )


def _immortal(meant: float) -> Callable[[Tables, np.random.Generator], None]:
    """Add the exposure "no second treatment", where only long survivors were treated again.

    `meant` is the share of patients who were meant to receive the treatment at all.
    """

    def disturb(tables: Tables, rng: np.random.Generator) -> None:
        _untreated(tables, rng, meant)

    return disturb


def _untreated(tables: Tables, rng: np.random.Generator, meant: float) -> None:
    clinical = tables.clinical
    wait = rng.exponential(500.0, len(clinical))
    never = wait >= clinical["OS.time"].to_numpy(dtype=float)
    never |= rng.random(len(clinical)) >= meant
    clinical["untreated"] = never.astype(int)
    tables.extra.append(variable_toml("untreated", "binary", "No second treatment"))


def _missing(tables: Tables, rng: np.random.Generator) -> None:
    """Remove more than half of the high measurements in long survivors."""
    time = tables.clinical["OS.time"].reindex(tables.expression.index).to_numpy(dtype=float)
    high = tables.expression[IDLE] > tables.expression[IDLE].median()
    lost = high.to_numpy() & (time > np.median(time)) & (rng.random(len(time)) < 0.6)
    tables.expression.loc[lost, IDLE] = np.nan


def _unmeasured(tables: Tables, rng: np.random.Generator) -> None:
    """Let a hidden variable, correlated with the exposure (0.6), affect survival."""
    _confound(tables, 0.6, rng)


def _confound(tables: Tables, correlation: float, rng: np.random.Generator) -> FloatArray:
    """Draw a variable correlated with the exposure that affects survival, and return its values."""
    hidden = rng.standard_normal(len(tables.clinical))
    _follow(tables, 0.6 * hidden, rng)
    mine = hidden[tables.clinical.index.get_indexer(tables.expression.index)]
    gene = tables.expression[IDLE]
    own = np.sqrt(1 - correlation**2) * _standardize(gene.to_numpy())
    tables.expression[IDLE] = gene.mean() + gene.std() * (correlation * mine + own)
    return hidden


def _available(correlation: float) -> Callable[[Tables, np.random.Generator], None]:
    """Record the confounder in a column, among columns unrelated to anything."""

    def disturb(tables: Tables, rng: np.random.Generator) -> None:
        tables.clinical["q17"] = _confound(tables, correlation, rng).round(2)
        tables.extra.append(variable_toml("q17", "continuous", "Item 17"))
        _add_bystanders(tables, rng)

    return disturb


def _clinics(tables: Tables, rng: np.random.Generator) -> None:
    """Rename the sites of `_sites`."""
    _sites(tables, rng)
    tables.clinical["clinic_code"] = tables.clinical.pop("site")
    tables.extra[-1] = variable_toml("clinic_code", "categorical", "Clinic")


def _add_bystanders(tables: Tables, rng: np.random.Generator) -> None:
    """Add five variables that are unrelated to anything."""
    for number in range(1, 6):
        tables.clinical[f"q{number}"] = rng.standard_normal(len(tables.clinical)).round(2)
        tables.extra.append(variable_toml(f"q{number}", "continuous", f"Item {number}"))


def _plant_among_bystanders(tables: Tables, rng: np.random.Generator) -> None:
    """Give the exposure and two unrelated variables an effect, and add five without an effect."""
    exposure = _standardize(_genes(tables)[IDLE].to_numpy())
    acting = rng.standard_normal((2, len(tables.clinical)))
    _follow(tables, np.log(PLANTED_PER_SD) * exposure + 0.5 * acting.sum(axis=0), rng)
    for number, values in enumerate(acting, start=20):
        tables.clinical[f"q{number}"] = values.round(2)
        tables.extra.append(variable_toml(f"q{number}", "continuous", f"Item {number}"))
    _add_bystanders(tables, rng)


KINDS = (
    Kind("clean", "nothing is related to the exposure"),
    Kind("confounding 0.3", "the exposure goes with stage, correlation 0.3",
         f"expression:{CONFOUNDED}", 0.3),
    Kind("confounding 0.6", "correlation 0.6", f"expression:{CONFOUNDED}", 0.6),
    Kind("confounding 0.9", "correlation 0.9", f"expression:{CONFOUNDED}", 0.9),
    Kind("sites", f"{SITES} sites differ in survival and in measured expression", disturb=_sites),
    Kind("batch", "the second of two batches reads higher and lives shorter", disturb=_batch),
    Kind("prognostic genes", "a fifth of all genes act on survival and go together",
         disturb=_prognostic(0.0)),
    Kind("proxy", "the exposure was recorded at the last visit, and nobody says when",
         "clinical:status_last", disturb=_proxy("unknown")),
    Kind("proxy called baseline", "the same, and the cohort says that it was a baseline value",
         "clinical:status_last", disturb=_proxy(None)),
    Kind("immortal time", "the exposure is a treatment that nobody got in time, called baseline",
         "clinical:untreated", disturb=_immortal(1.0)),
    Kind("partial immortal time", "the same, where it was meant for 70% of the patients",
         "clinical:untreated", disturb=_immortal(0.7)),
    Kind("informative missingness", "high values of long survivors are lost", disturb=_missing),
    Kind("small n", "60 patients", patients=60),
    Kind("unmeasured confounder",
        "correlation 0.6 with a cause of death that is not recorded",
        disturb=_unmeasured),
    Kind("confounder left out", "the same cause is recorded, and age, sex and stage are registered",
         covariates=USUAL, disturb=_available(0.6)),
    Kind("weak confounder left out", "the same, correlation 0.3",
         covariates=USUAL, disturb=_available(0.3)),
    Kind("confounder recorded", "the same cause is recorded, and no covariate is registered",
         disturb=_available(0.6)),
    Kind("clinics left out", f"{SITES} sites in a column `clinic_code`; age, sex and stage "
         "are registered", covariates=USUAL, disturb=_clinics),
    Kind("clinics", "the same, and no covariate is registered", disturb=_clinics),
    Kind("planted among bystanders", f"hazard ratio {PLANTED_PER_SD} per SD, 150 patients, and "
         "seven more variables; age, sex and stage are registered",
         patients=150, true=True, covariates=USUAL, disturb=_plant_among_bystanders),
    Kind("planted", f"hazard ratio {PLANTED_PER_SD} per SD, 150 patients, nothing else",
         patients=150, true=True, disturb=_plant),
    Kind("planted among prognostic genes", f"hazard ratio {PLANTED_PER_SD} per SD, 150 patients",
         patients=150, true=True, disturb=_prognostic(float(np.log(PLANTED_PER_SD)))),
)  # fmt: skip
BY_NAME = {kind.name: kind for kind in KINDS}

"""Simulated cohorts with up to five planted mechanisms among given variables.

A mechanism affects the hazards of death and progression alike:

- *main*: a gene, per standard deviation;
- *spatial*: a slide measurement, per standard deviation;
- *interaction*: the product of two standardized variables, without a main effect of
  either, so that no single-variable test detects it;
- *subgroup*: a gene, only in a single level of a clinical variable;
- *mediation*: a first variable changes a second, which has the effect; the first acts
  only through the second.

Stage and age have effects as in every simulated world. The truth is stored in
`mechanisms.json` next to the cohort, which no cohort reader opens.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from sage.core.models import Strict
from sage.core.seeds import generator
from validation.simulate.effects import Effects
from validation.simulate.world import FOLLOW_UP_DAYS, write_world
from validation.statistics.base import FloatArray

Kind = Literal["main", "spatial", "interaction", "subgroup", "mediation"]
KINDS: tuple[Kind, ...] = ("main", "spatial", "interaction", "subgroup", "mediation")
RATIOS: dict[Kind, float] = {
    "main": 1.5,
    "spatial": 1.5,
    "interaction": 1.6,
    "subgroup": 2.0,
    "mediation": 1.7,
}
"""Hazard ratio per standard deviation (of the product, within the subgroup, or of the mediator)."""
CARRIED = 0.7
"""Correlation of the mediator with the variable that affects it."""
SUBGROUPS = (("gender", "FEMALE"), ("smoking", "never"), ("subtype", "basal"))


class Mechanism(Strict):
    """A planted mechanism.

    `variables` are keys of the data dictionary; for a mediation, the cause comes first. `sign`
    is +1 if higher values are worse.
    """

    kind: Kind
    variables: tuple[str, ...]
    ratio: float
    sign: Literal[-1, 1] = 1
    within: tuple[str, str] | None = None


def draw_mechanisms(
    rng: np.random.Generator,
    singles: Sequence[str],
    pairs: Sequence[tuple[str, str]],
    count: int,
) -> tuple[Mechanism, ...]:
    """Draw mechanisms of different kinds on different variables.

    `singles` are variables that may act individually ("expression:FABP5"), `pairs` are those
    that may act together or through each other; `count` is at most five, with one mechanism
    of each kind.
    """
    kinds = [KINDS[at] for at in rng.permutation(len(KINDS))[:count]]
    used: set[str] = set()
    found = []
    for kind in kinds:
        both = kind in ("interaction", "mediation")
        prefix = "imaging:" if kind == "spatial" else "expression:"
        options: list[tuple[str, ...]] = [
            tuple(pair) for pair in pairs if both and not used & set(pair)
        ]
        if kind == "mediation":
            options = [pair for pair in options if all("expression:" in key for key in pair)]
        if not both:
            options = [(key,) for key in singles if key.startswith(prefix) and key not in used]
        if not options:
            continue
        variables = options[int(rng.integers(len(options)))]
        used |= set(variables)
        within = SUBGROUPS[int(rng.integers(len(SUBGROUPS)))] if kind == "subgroup" else None
        sign: Literal[-1, 1] = 1 if rng.random() < 0.5 else -1
        found.append(
            Mechanism(kind=kind, variables=variables, ratio=RATIOS[kind], sign=sign, within=within)
        )
    return tuple(found)


def write_planted(
    folder: Path, mechanisms: Sequence[Mechanism], *, seed: int, patients: int = 600
) -> None:
    """Write a simulated cohort in which only these mechanisms, stage and age have effects."""
    write_world(folder, seed=seed, patients=patients, null=True)
    true = Effects().without_biomarkers()
    clinical = pd.read_csv(folder / "clinical.csv", keep_default_na=False, dtype=str)
    expression = pd.read_csv(folder / "expression.csv").set_index("patient")
    imaging = pd.read_csv(folder / "imaging.csv").set_index("patient")
    people = clinical["patient"]
    rng = generator(seed * 7919 + 1)
    for mechanism in mechanisms:
        if mechanism.kind == "mediation":
            first, second = (key.partition(":")[2] for key in mechanism.variables)
            carried = expression[second]
            mixed = CARRIED * _z(expression[first]) + (1 - CARRIED**2) ** 0.5 * _z(carried)
            expression[second] = (mixed * carried.std() + carried.mean()).round(4)
    expression.reset_index().to_csv(folder / "expression.csv", index=False)

    def values(key: str) -> FloatArray:
        kind, _, name = key.partition(":")
        table = expression if kind == "expression" else imaging
        column = table[name].reindex(people)
        skewed = kind == "imaging" and name != "stroma_fraction"
        return np.asarray(_z(np.log1p(column) if skewed else column).fillna(0.0))

    n = len(people)
    risk = np.log(true.stage_iii_hr) * (clinical["stage"] == "Stage III").to_numpy(dtype=float)
    risk += np.log(true.stage_iv_hr) * (clinical["stage"] == "Stage IV").to_numpy(dtype=float)
    risk += np.log(true.age_per_decade_hr) * (clinical["age"].astype(float).to_numpy() - 68) / 10
    for mechanism in mechanisms:
        acting = values(mechanism.variables[-1])
        if mechanism.kind == "interaction":
            acting = acting * values(mechanism.variables[0])
        if mechanism.within is not None:
            column, level = mechanism.within
            acting = acting * (clinical[column] == level).to_numpy(dtype=float)
        risk += mechanism.sign * np.log(mechanism.ratio) * acting
    risk -= risk.mean()
    death = rng.exponential(1500.0, n) * np.exp(-risk)
    progression = rng.exponential(1900.0, n) * np.exp(-risk)
    leave = np.minimum(rng.uniform(300.0, FOLLOW_UP_DAYS, n), rng.exponential(6000.0, n) + 60.0)
    died = death <= leave
    days = np.maximum(np.minimum(death, leave).round(), 1.0)
    first_event = np.minimum(progression, death)
    of_tumor = rng.random(n) < 0.8
    clinical["OS.time"], clinical["OS"] = days, died.astype(int)
    clinical["PFI.time"] = np.minimum(np.maximum(np.minimum(first_event, leave).round(), 1.0), days)
    clinical["PFI"] = (first_event <= leave).astype(int)
    clinical["DSS.time"], clinical["DSS"] = days, (died & of_tumor).astype(int)
    clinical["cause_of_death"] = np.where(died, np.where(of_tumor, "tumor", "other"), "alive")
    clinical.to_csv(folder / "clinical.csv", index=False)
    planted = [mechanism.model_dump(mode="json") for mechanism in mechanisms]
    truth = {"simulated": True, "seed": seed, "mechanisms": planted}
    (folder / "mechanisms.json").write_text(json.dumps(truth, indent=1) + "\n", encoding="utf-8")
    for stale in ("truth.json", "PLANTED.md"):
        (folder / stale).unlink()


def _z(column: pd.Series) -> pd.Series:
    return (column - column.mean()) / column.std()

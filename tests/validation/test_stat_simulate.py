"""Simulated worlds: what was planted is there, what was not is not, and all of it says so."""

from __future__ import annotations

import hashlib
import json
import tomllib

import numpy as np
import pandas as pd
import pytest

from validation.simulate import Effects, write_world
from validation.statistics.binary import logistic
from validation.statistics.cox import cox


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return write_world(
        tmp_path_factory.mktemp("world") / "cohort", seed=7, patients=1200, slides=1, slide_px=512
    )


def tables(world):
    read = {n: pd.read_csv(world / f"{n}.csv") for n in ("clinical", "imaging", "expression")}
    return read["clinical"].merge(read["imaging"]).merge(read["expression"], on="patient")


def planted(table):
    def scaled(name):
        return (table[name] - table[name].mean()) / table[name].std()

    joint = (table.FABP5.median() < table.FABP5) & (table.tls_density <= table.tls_density.median())
    X = np.column_stack(
        (
            joint, scaled("CXCL13"), scaled("ADRM1") * (table.gender == "MALE"),
            table.stage == "Stage III", table.stage == "Stage IV", (table.age - 68) / 10,
        )
    )  # fmt: skip
    names = ["joint", "cxcl13", "adrm1 in men", "III", "IV", "age"]
    return cox(table["OS.time"], table.OS, X.astype(float), names), joint


def test_planted_effects_are_found_within_their_intervals(world):
    fit, joint = planted(tables(world))
    e = Effects()
    truth = [
        e.fabp5_high_tls_low_hr, e.cxcl13_per_sd_hr, e.adrm1_per_sd_hr_in_men,
        e.stage_iii_hr, e.stage_iv_hr, e.age_per_decade_hr,
    ]  # fmt: skip
    z = (fit.coef - np.log(truth)) / fit.se
    assert np.abs(z).max() < 3.3
    assert fit.p[[0, 1, 2, 4]].max() < 1e-3
    table = tables(world)
    known = table.nodes != "NX"
    nodes = logistic((table.nodes == "N+")[known], joint[known], ["joint"])
    assert nodes.lower[0] > 1.3


def test_everything_a_world_writes_says_simulated(world):
    import tifffile

    spec = tomllib.loads((world / "cohort.toml").read_text())
    assert spec["simulated"] is True
    assert "SIMULATED" in spec["title"]
    clinical = pd.read_csv(world / "clinical.csv")
    assert (clinical.simulated == "yes").all()
    assert clinical.patient.str.startswith("SIM-").all()
    for slide in (world / "slides").glob("*.tiff"):
        with tifffile.TiffFile(slide) as tiff:
            assert "SIMULATED" in tiff.pages[0].description
    assert json.loads((world / "truth.json").read_text())["simulated"] is True


def test_the_cohort_description_gives_none_of_the_truth_away(world):
    text = (world / "cohort.toml").read_text().lower()
    for word in ("truth", "planted", "effect", "null", "hazard", "hr ="):
        assert word not in text


def test_the_same_seed_writes_the_same_bytes(tmp_path):
    def digest(folder):
        write_world(folder, seed=11, patients=60, slides=1, slide_px=512)
        return {
            p.relative_to(folder).as_posix(): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(folder.rglob("*")) if p.is_file()
        }  # fmt: skip

    first = digest(tmp_path / "a")
    assert first == digest(tmp_path / "b")
    assert "slides/SIM-0001.tiff" in first

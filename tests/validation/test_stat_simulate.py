"""Simulated worlds: what was planted is there, what was not is not, and all of it says so."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import asdict

import numpy as np
import pandas as pd
import pytest

from validation.simulate import Effects, render_slide, write_world
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


def test_null_worlds_have_no_biomarker_effect_but_keep_stage(tmp_path):
    world = write_world(tmp_path / "w", seed=3, patients=1200, null=True)
    fit, _ = planted(tables(world))
    assert np.abs((fit.coef / fit.se)[:3]).max() < 3.3
    assert fit.p[4] < 1e-6
    truth = json.loads((world / "truth.json").read_text())
    assert truth["null"] and truth["effects"]["cxcl13_per_sd_hr"] == 1.0


def test_a_world_with_nothing_has_not_even_stage(tmp_path):
    world = write_world(tmp_path / "w", seed=3, patients=800, effects=Effects.nothing())
    fit, _ = planted(tables(world))
    assert np.abs(fit.coef / fit.se).max() < 3.5


def test_confounding_makes_a_crude_association_that_adjustment_removes(tmp_path):
    effects = Effects.nothing()
    effects = Effects(
        **(asdict(effects) | {"confounding": 0.6, "stage_iii_hr": 2.0, "stage_iv_hr": 4.0})
    )
    table = tables(write_world(tmp_path / "w", seed=5, patients=1500, effects=effects))
    stage = np.column_stack((table.stage == "Stage III", table.stage == "Stage IV"))
    crude = cox(table["OS.time"], table.OS, table[["FABP5"]], ["FABP5"])
    adjusted = cox(
        table["OS.time"], table.OS, np.column_stack((table.FABP5, stage)), ["FABP5", "III", "IV"]
    )
    assert crude.p[0] < 1e-4
    assert abs(adjusted.coef[0]) < 0.5 * abs(crude.coef[0])


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


@pytest.fixture(scope="module")
def slide(tmp_path_factory):
    path = tmp_path_factory.mktemp("slide") / "slide.tiff"
    return render_slide(path, seed=4, size_px=1536, mpp=0.5, aggregates=2), path


def test_nuclei_are_blue_on_pink_where_the_truth_says(slide):
    import tifffile
    from skimage.color import rgb2hed

    truth, path = slide
    hematoxylin = rgb2hed(tifffile.imread(path))[..., 0]
    x, y = truth.lymphocytes[:, 0].clip(0, 1535), truth.lymphocytes[:, 1].clip(0, 1535)
    inside = hematoxylin[y, x]
    image = tifffile.imread(path)
    stroma = hematoxylin[(image[..., 0] > 180) & (image[..., 1] < 170)]
    assert np.median(inside) > 3 * np.quantile(stroma, 0.9)
    corner = image[:40, :40].reshape(-1, 3)
    assert (corner > 230).all()


def test_aggregates_are_found_by_a_plain_density_of_hematoxylin(slide):
    import cv2
    import tifffile
    from skimage.color import rgb2hed

    truth, path = slide
    hematoxylin = np.maximum(rgb2hed(tifffile.imread(path))[..., 0], 0)
    density = cv2.GaussianBlur(hematoxylin, (0, 0), 40)
    mask = (density > 0.55 * density.max()).astype(np.uint8)
    count, _, stats, centers = cv2.connectedComponentsWithStats(mask)
    blobs = [centers[i] for i in range(1, count) if stats[i, cv2.CC_STAT_AREA] > 3000]
    assert len(blobs) == len(truth.aggregates) == 2
    for aggregate in truth.aggregates:
        away = min(np.hypot(b[0] - aggregate.x, b[1] - aggregate.y) for b in blobs)
        assert away < 0.5 * aggregate.radius
        assert aggregate.lymphocytes > 200

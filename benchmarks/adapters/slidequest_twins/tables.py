"""Data of numbers with a truth: tables, bags of features, points, contours."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.adapters.slidequest_twins.twin import Row


def _patients(folder: Path, rng: Generator, rows: int = 240) -> dict[str, np.ndarray[Any, Any]]:
    columns = {
        "patient": np.array([f"P{n:03d}" for n in range(rows)]),
        "stage": rng.choice(["I", "II", "III"], rows),
        "age": rng.normal(62, 9, rows).round(1),
        "area": rng.gamma(4.0, 12.0, rows).round(2),
        "solidity": rng.normal(0.9, 0.03, rows).round(4),
    }
    write_table(folder / "table.csv", columns)
    return columns


def write_table(path: Path, columns: dict[str, np.ndarray[Any, Any]]) -> None:
    """A CSV of columns."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))


def filtered(folder: Path, rng: Generator) -> Row:
    """A table of patients; how many of a stage and age, and their mean."""
    held = _patients(folder, rng)
    mine = (held["stage"] == "II") & (held["age"].astype(float) > 60)
    return {"patients": int(mine.sum()), "mean_area": float(held["area"][mine].mean())}


def summary(folder: Path, rng: Generator) -> Row:
    """A table of patients; moments of a column, the most common of another."""
    held = _patients(folder, rng)
    area = held["area"].astype(float)
    return {"mean": float(area.mean()), "sd": float(area.std(ddof=1)),
            "median": float(np.median(area)),
            "most_common_stage": max(["I", "II", "III"], key=[*held["stage"]].count)}  # fmt: skip


def embeddings(folder: Path, rng: Generator) -> Row:
    """A slide's patch embeddings; how many, and their mean norm."""
    import h5py

    features = rng.normal(0, 2, (int(rng.integers(20, 60)), 32)).astype(np.float32)
    with h5py.File(folder / "slide.h5", "w") as file:
        file.create_dataset("features", data=features)
    norms = np.sqrt((features.astype(float) ** 2).sum(1))
    return {"patches": len(features), "mean_norm": float(norms.mean())}


def contour(folder: Path, rng: Generator) -> Row:
    """A wavy closed contour; its area and perimeter."""
    turns = np.sort(rng.uniform(0, 2 * np.pi, 40))
    radius = 50 + 12 * np.sin(3 * turns)
    points = np.stack([100 + radius * np.cos(turns), 90 + radius * np.sin(turns)], axis=1)
    (folder / "contour.json").write_text(json.dumps(points.tolist()))
    following = np.roll(points, -1, axis=0)
    area = 0.5 * abs((points[:, 0] * following[:, 1] - points[:, 1] * following[:, 0]).sum())
    return {"area": float(area), "perimeter": float(np.hypot(*(following - points).T).sum())}


def cells(folder: Path, rng: Generator) -> Row:
    """Cells of two types; the mean distance of one to the nearest of the other."""
    tumor, lymph = rng.uniform(0, 1000, (80, 2)), rng.uniform(0, 1000, (150, 2))
    every = np.concatenate([tumor, lymph])
    write_table(folder / "cells.csv", {
        "x": every[:, 0].round(2), "y": every[:, 1].round(2),
        "type": np.array(["tumor"] * 80 + ["lymphocyte"] * 150),
    })  # fmt: skip
    gaps = np.sqrt(((tumor[:, None] - lymph[None]) ** 2).sum(-1)).min(1)
    return {"mean_nearest": float(gaps.mean())}


def groups(folder: Path, rng: Generator) -> Row:
    """Three measures of two groups, one of which differs."""
    group = np.array(["wt", "mut"] * 40)
    shifted = str(rng.choice(["area", "solidity", "density"]))
    columns: dict[str, Any] = {"group": group}
    for name in ("area", "solidity", "density"):
        columns[name] = (rng.normal(5, 1, 80) + 2.0 * ((name == shifted) & (group == "mut"))).round(
            3
        )
    write_table(folder / "groups.csv", columns)
    return {"differs": shifted}


def labelled(folder: Path, rng: Generator, shift: float = 4.0, rows: int = 120) -> Row:
    """Features of which one tells the label.

    Parameters
    ----------
    folder : where features.csv is written
    rng : of the noise
    shift : standard deviations between the two labels
    rows : of the table, an even number; the last quarter is the test part
    """
    label = np.array([0, 1] * (rows // 2))
    features = rng.normal(0, 1, (rows, 6))
    features[:, 2] += shift * label
    write_table(folder / "features.csv", {
        **{f"f{n}": features[:, n].round(4) for n in range(6)}, "label": label,
        "part": np.where(np.arange(rows) < rows * 3 // 4, "train", "test"),
    })  # fmt: skip
    return {"accuracy": 1.0}


def scored(folder: Path, rng: Generator) -> Row:
    """Labels and scores; the area under the ROC curve."""
    label = rng.integers(0, 2, 200)
    given = rng.normal(0, 1, 200) + rng.uniform(0.3, 1.5) * label
    write_table(folder / "scores.csv", {"label": label, "score": given.round(5)})
    yes, no = given[label == 1].round(5), given[label == 0].round(5)
    return {"auc": float((yes[:, None] > no[None]).mean())}


def bags(folder: Path, rng: Generator, slides: int = 24) -> Row:
    """A bag of patches per slide; three patches of every second bag tell the label."""
    import h5py

    (folder / "features").mkdir()
    rows = ["slide_id,case_id,status"]
    for number in range(slides):
        bag = rng.normal(0, 1, (30, 16)).astype(np.float32)
        if number % 2:
            bag[4:7, 0] += 6
        with h5py.File(folder / "features" / f"s{number}.h5", "w") as file:
            file.create_dataset("features", data=bag)
        rows.append(f"s{number}.svs,p{number},{'mut' if number % 2 else 'wt'}")
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return {"auc": 1.0}


def bags_with_planted_patches(folder: Path, rng: Generator) -> Row:
    """Bags whose most attended patches are those that tell the label."""
    bags(folder, rng, slides=90)
    return {"share_of_top_patches_planted": 1.0}


def survival(folder: Path, rng: Generator) -> Row:
    """Exponential times with a hazard ratio, censored."""
    size = 1500
    ratio = float(rng.choice([1.5, 2.0, 2.5]))
    exposed = rng.integers(0, 2, size)
    times = rng.exponential(1000 / ratio**exposed)
    ends = rng.uniform(300, 3000, size)
    write_table(folder / "survival.csv", {
        "exposed": exposed, "days": np.minimum(times, ends).round(1) + 1,
        "event": (times <= ends).astype(int),
    })  # fmt: skip
    return {"hazard_ratio": ratio}


def points(folder: Path, rng: Generator) -> Row:
    """Points of three groups; sizes of the smallest and the largest."""
    sizes = sorted(int(v) for v in rng.integers(20, 60, 3))
    points = np.concatenate([
        rng.normal(10 * n, 0.7, (size, 4)) for n, size in enumerate(sizes)
    ])  # fmt: skip
    points = rng.permutation(points)
    write_table(folder / "points.csv", {f"f{n}": points[:, n].round(4) for n in range(4)})
    return {"smallest": sizes[0], "largest": sizes[2]}

"""Two real data sets as cohorts with maps: TLS of TCGA-BLCA and -LUSC, cells of 50 lung cancers.

    python -m benchmarks.spatial_cohorts ../shared/data cohorts-with-maps

Writes `blca`, `lusc`, `nsclc-discovery` and `nsclc-confirmation`, each with `cohort.toml`,
`clinical.csv` and `maps/`.

TLS and germinal centers are HookNet-TLS's predictions (van Rijthoven et al. 2024, Communications
Medicine) on slides that took no part in its training or validation; a slide of that list without an
object has none. Only their places are known, in pixels of 0.5 µm, not the outline of the tissue.
0.5 µm is borne out by the data: the farthest object lies 47 x 25 mm from the corner, as far as a
glass slide reaches; neighbors are rarely nearer than 190 µm, the mean TLS being 260 µm across;
where a slide has 15 objects and a density, their hull takes half of the tissue that both imply.

The cells (Vectra, adapted by the R package mxfda from Bioconductor's VectraPolarisData) have
coordinates in µm: they span 673 x 503, the field of the scanner at 20x. Only those of the tumor
compartment are there, so the tissue is taken for what lies within 20 µm of a cell. Every third
patient is kept for confirmation.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import pandas as pd
import shapely

from mcp_servers.measures.maps import (
    CellMap,
    ObjectMap,
    SlideMaps,
    multipolygon,
    shape_map,
    write_maps,
)

UM_PER_PX = 0.5
KINDS = {"TLS": "tls", "GC": "germinal_center"}
TYPES = ("neoplastic", "b_cell", "cd8_t_cell", "cd4_t_cell", "myeloid", "other")
AROUND_UM = 20.0
STAGES = {"Stage I": 1, "Stage II": 2, "Stage III": 3, "Stage IV": 4}

TOML = """id = "{id}"
title = "{title}"
license = "{license}"
notes = {notes}
patient = {{ table = "clinical", ids = "exact" }}
known_at = "baseline"

[tables.clinical]
file = "clinical.csv"
key = "patient"

[variables.age]
table = "clinical"
column = "age"
kind = "continuous"
label = "Age"
unit = "years"

[variables.sex]
table = "clinical"
column = "sex"
kind = "categorical"
label = "Sex"

[variables.stage]
table = "clinical"
column = "stage"
kind = "ordinal"
label = "Stage"

[endpoints.OS]
table = "clinical"
time = "days"
time_unit = "days"
event = "dead"
event_values = [1]
censored_values = [0]
label = "Overall survival"
"""


def tls_cohort(shared: Path, organ: str, out: Path) -> None:
    """TLS and germinal centers on the slides of an organ that the detector had not seen."""
    objects = pd.read_csv(shared / "spatial" / "hooknet_tls_objects_blca_lusc.csv")
    slides = pd.read_csv(shared / "tcga_blca" / "Quantitative_pathology_data.csv")
    unseen = slides[(slides.Tumor_type == organ) & (slides.Slide_set == "test/survival")]
    found = objects[
        (objects.source == "PRED") & (objects.dataset == "test") & objects.label.isin(list(KINDS))
    ].drop_duplicates(["name", "label", "x", "y"])
    by_slide = dict(iter(found.groupby("name")))
    for slide, patient in zip(unseen.hooknet_id, unseen.bcr_patient_barcode, strict=True):
        own = by_slide.get(slide, found.iloc[:0])
        points = shapely.points(own[["x", "y"]].to_numpy(dtype=float) * UM_PER_PX)
        kinds = [KINDS[label] for label in own.label]
        maps = SlideMaps(
            slide=slide,
            patient=patient,
            objects=shape_map(ObjectMap, list(points), kinds, list(KINDS.values())),
            mpp=UM_PER_PX,
            provenance={"objects": "HookNet-TLS, predicted"},
        )
        write_maps(maps, out / "maps" / slide)
    cdr = pd.read_csv(shared / "tcga_blca" / "TCGA-CDR.csv", low_memory=False)
    cdr = cdr[(cdr.type == organ) & cdr.bcr_patient_barcode.isin(unseen.bcr_patient_barcode)]
    stage = cdr.ajcc_pathologic_tumor_stage.str.replace("[ABC]$", "", regex=True).map(STAGES)
    clinical = pd.DataFrame(
        {
            "patient": cdr.bcr_patient_barcode,
            "age": cdr.age_at_initial_pathologic_diagnosis,
            "sex": cdr.gender.str.lower(),
            "stage": stage.astype("Int64"),
            "days": pd.to_numeric(cdr["OS.time"], errors="coerce"),
            "dead": pd.to_numeric(cdr["OS"], errors="coerce").astype("Int64"),
        }
    )
    clinical = clinical[clinical.days > 0]
    _write(
        out,
        clinical,
        f"tls-{organ.lower()}",
        f"TLS on slides of TCGA-{organ}",
        "MIT",
        [
            "Outcomes: TCGA-CDR (Liu et al. 2018, Cell).",
            "Slides that trained or validated the TLS detector are left out.",
        ],
    )


def cell_cohort(shared: Path, out: Path) -> None:
    """Typed cells of the tumor compartment in fields of 50 lung cancers."""
    cells = pd.read_csv(shared / "spatial" / "nsclc_vectra_cells.csv.gz", low_memory=False)
    positive = [
        cells.phenotype_ck == "CK+",
        cells.phenotype_cd19 == "CD19+",
        cells.phenotype_cd8 == "CD8+",
        cells.phenotype_cd4 == "CD4+",
        cells.phenotype_cd14 == "CD14+",
    ]
    cells["code"] = np.select(positive, range(5), default=5)
    patients = sorted(cells.patient_id.unique())
    part = {
        patient: "confirmation" if place % 3 == 2 else "discovery"
        for place, patient in enumerate(patients)
    }
    for field, own in cells.groupby("patientImage_id"):
        xy = own[["x", "y"]].to_numpy(dtype=float)
        maps = SlideMaps(
            slide=f"F{field}",
            patient=f"L{own.patient_id.iloc[0]}",
            window=multipolygon(shapely.buffer(shapely.points(xy), AROUND_UM, quad_segs=4)),
            cells=CellMap(xy[:, 0], xy[:, 1], TYPES, own.code.to_numpy(dtype=np.int64)),
            mpp=UM_PER_PX,
            provenance={"cells": "Vectra, InForm phenotypes"},
        )
        folder = out / f"nsclc-{part[own.patient_id.iloc[0]]}"
        write_maps(maps, folder / "maps" / f"F{field}")
    first = cells.groupby("patient_id").first().reset_index()
    clinical = pd.DataFrame(
        {
            "patient": "L" + first.patient_id.astype(str),
            "age": first.age,
            "sex": first.gender,
            "stage": first.stage,
            "days": first.survival_days,
            "dead": first.survival_status,
        }
    )
    for name in ("discovery", "confirmation"):
        _write(
            out / f"nsclc-{name}",
            clinical[first.patient_id.map(part) == name],
            f"nsclc-{name}",
            f"Cells of non-small-cell lung cancers, {name}",
            "MIT; Artistic-2.0",
            [
                "Cells of the tumor compartment alone.",
                "50 patients with 33 deaths in all: too few to confirm more than a very strong"
                " effect.",
            ],
        )


def _write(
    out: Path, clinical: pd.DataFrame, name: str, title: str, license_: str, notes: list[str]
) -> None:
    clinical.to_csv(out / "clinical.csv", index=False)
    text = TOML.format(id=name, title=title, license=license_, notes=json.dumps(notes))
    (out / "cohort.toml").write_text(text, encoding="utf-8")
    print(f"{out}: {len(clinical)} patients, {clinical.dead.sum()} deaths")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shared", type=Path)
    parser.add_argument("out", type=Path)
    given = parser.parse_args()
    tls_cohort(given.shared, "BLCA", given.out / "blca")
    tls_cohort(given.shared, "LUSC", given.out / "lusc")
    cell_cohort(given.shared, given.out)


if __name__ == "__main__":
    main()

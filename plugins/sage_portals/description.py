"""The `cohort.toml` for fetched data, with endpoints for the columns that were returned."""

from __future__ import annotations

import csv
from pathlib import Path


def description_of(name: str, project: str, study: str, out: Path, counts: bool) -> str:
    """Build the description of the files that `fetch` left in `out`."""
    with (out / "cbioportal_patients.csv").open(encoding="utf-8", newline="") as handle:
        header = next(csv.reader(handle))
    text = f'''\
# Written by `sage portals fetch {name}`.
id = "{name}"
title = "{project} from GDC and cBioPortal ({study})"
license = "TCGA open access; cBioPortal data: ODbL 1.0"
risk_factors = ["clinical:stage"]
patient = {{ table = "gdc", ids = "tcga" }}

[tables.gdc]
file = "gdc_clinical.csv"
key = "submitter_id"
known_at = "baseline"
source = "GDC cases endpoint"

[tables.cbioportal]
file = "cbioportal_patients.csv"
key = "PATIENT_ID"
known_at = "baseline"
source = "cBioPortal study {study}"

[variables.gender]
table = "gdc"
column = "gender"
kind = "binary"
label = "Sex"
synonyms = ["sex"]

[variables.stage]
table = "gdc"
column = "ajcc_pathologic_stage"
kind = "ordinal"
label = "AJCC pathologic stage"
values = {{ "Stage I" = 1, "Stage II" = 2, "Stage III" = 3, "Stage IV" = 4 }}
other = "missing"

[endpoints.pN_positive]
kind = "binary"
table = "gdc"
column = "ajcc_pathologic_n"
positive_values = ["N1", "N2", "N3"]
negative_values = ["N0"]
missing_values = ["NX"]
contained_in = ["clinical:stage"]
label = "Lymph-node positivity (pN1-3 against pN0)"
'''
    if "AGE" in header:
        text += (
            '\n[variables.age]\ntable = "cbioportal"\ncolumn = "AGE"\nkind = "continuous"\n'
            'unit = "years"\nlabel = "Age at diagnosis"\n'
        )
    labels = {
        "OS": ("Overall survival", "1:DECEASED", "0:LIVING"),
        "DSS": ("Disease-specific survival", "1:DEAD WITH TUMOR", "0:ALIVE OR DEAD TUMOR FREE"),
        "PFS": ("Progression-free survival", "1:PROGRESSION", "0:CENSORED"),
        "DFS": ("Disease-free survival", "1:Recurred/Progressed", "0:DiseaseFree"),
    }
    for key, (label, event, censored) in labels.items():
        if {f"{key}_STATUS", f"{key}_MONTHS"} <= set(header):
            text += (
                f'\n[endpoints.{key}]\nkind = "survival"\ntable = "cbioportal"\n'
                f'time = "{key}_MONTHS"\ntime_unit = "months"\nevent = "{key}_STATUS"\n'
                f'event_values = ["{event}"]\ncensored_values = ["{censored}"]\n'
                f'label = "{label}"\n'
            )
    if counts:
        return text + (
            '\n[expression]\nfile = "counts.csv.gz"\nsymbol = "symbol"\ndrop = ["ensembl_id"]\n'
            'scale = "counts"\ntransform = "log2cpm"\nunit = "log2(CPM+1)"\n'
            'known_at = "baseline"\n'
            'source = "GDC STAR counts, protein-coding genes"\n'
        )
    return text + (
        '\n[expression]\nfile = "expression.csv"\norientation = "samples_by_genes"\n'
        'sample = "SAMPLE_ID"\nscale = "rsem"\ntransform = "log2"\nunit = "log2(RSEM+1)"\n'
        'known_at = "baseline"\n'
        'source = "cBioPortal, RNA Seq V2 RSEM"\n'
    )

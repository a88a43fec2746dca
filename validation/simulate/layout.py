"""The `cohort.toml` of a simulated cohort: tables, variables with units, endpoints with coding."""

from __future__ import annotations

import json

_TABLES = """
[patient]
table = "clinical"

[tables.clinical]
file = "clinical.csv"
key = "patient"
known_at = "baseline"
source = "simulated"

[tables.imaging]
file = "imaging.csv"
key = "patient"
known_at = "baseline"
source = "simulated"

[expression]
file = "expression.csv"
orientation = "samples_by_genes"
sample = "patient"
scale = "log2"
unit = "log2(CPM+1), simulated"
known_at = "baseline"
source = "simulated"
"""

# name, column's table, kind, modality, label, unit, synonyms
_VARIABLES = (
    ("age", "clinical", "continuous", "clinical", "Age at diagnosis", "years", ()),
    ("gender", "clinical", "binary", "clinical", "Sex", None, ("sex",)),
    ("stage", "clinical", "ordinal", "clinical", "Pathologic stage", None, ("tumor stage",)),
    ("grade", "clinical", "binary", "clinical", "Histologic grade", None, ()),
    ("smoking", "clinical", "binary", "clinical", "Smoking history", None, ("tobacco",)),
    ("subtype", "clinical", "binary", "clinical", "Expression subtype", None, ("basal", "luminal")),
    (
        "tls_density", "imaging", "continuous", "imaging",
        "TLS density on H&E slides", "1/mm2",
        ("TLS", "tertiary lymphoid structure", "lymphoid aggregates"),
    ),
    (
        "til_density", "imaging", "continuous", "imaging",
        "Density of tumor-infiltrating lymphocytes on H&E", "1/mm2",
        ("TIL", "tumor infiltrating lymphocytes"),
    ),
    (
        "stroma_fraction", "imaging", "continuous", "imaging",
        "Stromal share of tissue area on H&E", "fraction", ("stroma", "stroma-rich"),
    ),
    (
        "til_margin_enrichment", "imaging", "continuous", "imaging",
        "Lymphocyte density at the margin over that in the center", "ratio", ("margin enrichment",),
    ),
)  # fmt: skip

_ENDPOINTS = """
[endpoints.OS]
kind = "survival"
label = "Overall survival"
table = "clinical"
time = "OS.time"
time_unit = "days"
event = "OS"
event_values = [1]
censored_values = [0]

[endpoints.PFI]
kind = "survival"
label = "Progression-free interval"
table = "clinical"
time = "PFI.time"
time_unit = "days"
event = "PFI"
event_values = [1]
censored_values = [0]

[endpoints.DSS]
kind = "survival"
label = "Disease-specific survival"
table = "clinical"
time = "DSS.time"
time_unit = "days"
event = "DSS"
event_values = [1]
censored_values = [0]

[endpoints.cause]
kind = "competing"
label = "Death from the tumor, other deaths competing"
table = "clinical"
time = "OS.time"
time_unit = "days"
event = "cause_of_death"
event_values = ["tumor"]
competing_values = ["other"]
censored_values = ["alive"]

[endpoints.nodes]
kind = "binary"
label = "Lymph node positivity"
table = "clinical"
column = "nodes"
positive_values = ["N+"]
negative_values = ["N0"]
missing_values = ["NX"]
"""


def cohort_toml(seed: int, null: bool, patients: int, slides: bool) -> str:
    """The cohort's description. It says simulated, and nothing of what is true."""
    head = [
        "# SIMULATED: no patient stands behind any row of this folder.",
        f'id = "simulated-bladder-{seed}"',
        f'title = "SIMULATED bladder cohort (seed {seed}, {patients} invented patients)"',
        "simulated = true",
        'license = "CC0-1.0"',
        'notes = ["Simulated data: results say nothing about any disease."]',
    ]
    body = [_TABLES]
    for name, table, kind, modality, label, unit, synonyms in _VARIABLES:
        body.append(f"[variables.{name}]")
        body.append(f'table = "{table}"\ncolumn = "{name}"\nkind = "{kind}"')
        body.append(f'modality = "{modality}"\nlabel = "{label}"')
        if unit:
            body.append(f'unit = "{unit}"')
        if name == "stage":
            body.append('values = { "Stage II" = 2, "Stage III" = 3, "Stage IV" = 4 }')
        if synonyms:
            body.append(f"synonyms = {json.dumps(list(synonyms))}")
        body.append("")
    body.append(_ENDPOINTS)
    if slides:
        body.append(
            '[tables.slides]\nfile = "slides.csv"\nkey = "patient"\n\n'
            '[slides]\ntable = "slides"\nfile_column = "file"\nknown_at = "baseline"\n'
        )
    return "\n".join(head) + "\n" + "\n".join(body)

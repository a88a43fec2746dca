"""The `cohort.toml` of a simulated cohort: tables, variables with units, and coded endpoints."""

from __future__ import annotations

import json

TABLES = """
[patient]
table = "clinical"

[tables.clinical]
file = "clinical.csv"
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

# name, table of the column, kind, modality, label, unit, synonyms
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

_IMAGING = """
[tables.imaging]
file = "imaging.csv"
key = "patient"
known_at = "baseline"
source = "simulated"
"""

_SURVIVAL = {
    "OS": "Overall survival",
    "PFI": "Progression-free interval",
    "DSS": "Disease-specific survival",
}

_OTHER_ENDPOINTS = """
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


def survival_toml(name: str) -> str:
    """Render a time-to-event endpoint in days."""
    return (
        f'\n[endpoints.{name}]\nkind = "survival"\nlabel = "{_SURVIVAL[name]}"\n'
        f'table = "clinical"\ntime = "{name}.time"\ntime_unit = "days"\nevent = "{name}"\n'
        'time_zero = "diagnosis"\n'
        "event_values = [1]\ncensored_values = [0]\n"
    )


def variable_toml(
    name: str,
    kind: str,
    label: str,
    *,
    table: str = "clinical",
    modality: str = "clinical",
    unit: str | None = None,
    synonyms: tuple[str, ...] = (),
    known_at: str | None = None,
) -> str:
    """Render a variable stored in the column with its name; `known_at` overrides its table's."""
    text = f'\n[variables.{name}]\ntable = "{table}"\ncolumn = "{name}"\nkind = "{kind}"\n'
    text += f'modality = "{modality}"\nlabel = "{label}"\n'
    if unit:
        text += f'unit = "{unit}"\n'
    if name == "stage":
        text += 'values = { "Stage II" = 2, "Stage III" = 3, "Stage IV" = 4 }\n'
    if synonyms:
        text += f"synonyms = {json.dumps(list(synonyms))}\n"
    if known_at:
        text += f'known_at = "{known_at}"\n'
    return text


def cohort_toml(seed: int, patients: int, slides: bool) -> str:
    """Render the cohort's description, which reveals the simulation but not the true effects."""
    head = [
        "# SIMULATED: no row of this folder describes a real patient.",
        f'id = "simulated-bladder-{seed}"',
        f'title = "SIMULATED bladder cohort (seed {seed}, {patients} invented patients)"',
        "simulated = true",
        'license = "CC0-1.0"',
        'notes = ["A Markdown file in the folder of the cohort says what the program put in."]',
        'risk_factors = ["clinical:stage", "clinical:age"]',
    ]
    body = [TABLES, _IMAGING]
    body += [
        variable_toml(name, kind, label, table=table, modality=modality, unit=unit, synonyms=words)
        for name, table, kind, modality, label, unit, words in _VARIABLES
    ]
    body += [survival_toml(name) for name in _SURVIVAL]
    body.append(_OTHER_ENDPOINTS)
    if slides:
        body.append(
            '[tables.slides]\nfile = "slides.csv"\nkey = "patient"\n\n'
            '[slides]\ntable = "slides"\nfile_column = "file"\nknown_at = "baseline"\n'
        )
    return "\n".join(head) + "\n" + "\n".join(body)

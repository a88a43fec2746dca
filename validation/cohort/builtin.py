"""Built-in cohorts, based on data sets bundled with an installed library."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from validation.cohort.model import CohortSpec
from validation.core.types import CohortSummary

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

NAMES = ("gbsg2",)
COLUMNS = [
    *("row", "age", "estrec", "horTh", "menostat", "pnodes", "progrec", "tgrade", "tsize"),
    *("time", "cens"),
]
TITLES = {"gbsg2": "German Breast Cancer Study Group 2: 686 node-positive breast cancers"}

GBSG2 = """
id = "gbsg2"
title = "German Breast Cancer Study Group 2: 686 node-positive breast cancers"
license = "public data set distributed with lifelines"
notes = ["Schumacher et al. 1994, Journal of Clinical Oncology"]
risk_factors = ["clinical:positive_nodes", "clinical:tumor_grade"]
patient = { table = "gbsg2" }
tables.gbsg2 = { file = "gbsg2.csv", key = "row", known_at = "baseline" }

[variables]
age = { table = "gbsg2", column = "age", kind = "continuous", unit = "years", label = "Age" }
tumor_size = { table = "gbsg2", column = "tsize", kind = "continuous", unit = "mm", \
label = "Tumor size" }
tumor_grade = { table = "gbsg2", column = "tgrade", kind = "ordinal", label = "Tumor grade", \
values = { I = 1, II = 2, III = 3 } }
positive_nodes = { table = "gbsg2", column = "pnodes", kind = "continuous", unit = "nodes", \
label = "Positive lymph nodes", synonyms = ["node positivity"] }
progesterone_receptor = { table = "gbsg2", column = "progrec", kind = "continuous", \
unit = "fmol", label = "Progesterone receptor", synonyms = ["PGR"] }
estrogen_receptor = { table = "gbsg2", column = "estrec", kind = "continuous", unit = "fmol", \
label = "Estrogen receptor", synonyms = ["ESR1"] }
hormonal_therapy = { table = "gbsg2", column = "horTh", kind = "binary", \
label = "Hormonal therapy", synonyms = ["tamoxifen"] }
menopausal_status = { table = "gbsg2", column = "menostat", kind = "binary", \
label = "Menopausal status" }

[endpoints.RFS]
kind = "survival"
table = "gbsg2"
time = "time"
time_unit = "days"
event = "cens"
event_values = [1]
censored_values = [0]
label = "Recurrence-free survival"
note = "the column is called cens, and 1 means an event"
"""


def summaries() -> list[CohortSummary]:
    """Summarize the built-in cohorts."""
    return [
        CohortSummary(id=name, title=TITLES[name], kind="builtin", simulated=False, patients=686)
        for name in NAMES
    ]


def load(name: str) -> Cohort:
    """Load the built-in cohort `name` through a temporary folder."""
    import tempfile
    import weakref
    from pathlib import Path

    from lifelines.datasets import load_gbsg2

    from validation.cohort.cohort import Cohort

    table = load_gbsg2()
    numbers = ["age", "estrec", "pnodes", "progrec", "tsize", "time"]
    table[numbers] = table[numbers].astype(float)
    table.insert(0, "row", [f"{place + 1}" for place in range(len(table))])
    holder = tempfile.TemporaryDirectory(prefix="sage-gbsg2-")
    folder = Path(holder.name)
    table[COLUMNS].to_csv(folder / "gbsg2.csv", index=False)
    cohort = Cohort(CohortSpec.model_validate(tomllib.loads(GBSG2)), folder)
    cohort.hashes()
    weakref.finalize(cohort, holder.cleanup)
    return cohort

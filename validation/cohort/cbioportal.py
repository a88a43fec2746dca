"""cBioPortal study folders, as they are downloaded.

File formats: docs.cbioportal.org, "File Formats". Clinical files carry four comment lines above
their header; survival status columns hold `0:LIVING` and `1:DECEASED`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from validation.cohort.model import CohortSpec
from validation.cohort.tables import MISSING, read_text_table

ENDPOINTS = {
    "OS": "Overall survival",
    "DSS": "Disease-specific survival",
    "PFS": "Progression-free survival",
    "DFS": "Disease-free survival",
    "PFI": "Progression-free interval",
    "DFI": "Disease-free interval",
}
EXPRESSION = (
    "data_mrna_seq_v2_rsem.txt",
    "data_RNA_Seq_v2_expression_median.txt",
    "data_mrna_seq_rpkm.txt",
    "data_mrna_seq_tpm.txt",
    "data_mrna_seq_fpkm.txt",
    "data_mrna_affymetrix_microarray.txt",
    "data_expression_median.txt",
)
AT_DIAGNOSIS = {
    "AGE",
    "AGE_AT_DIAGNOSIS",
    "SEX",
    "GENDER",
    "RACE",
    "ETHNICITY",
    "GRADE",
    "AJCC_PATHOLOGIC_TUMOR_STAGE",
    "PATH_T_STAGE",
    "PATH_N_STAGE",
    "PATH_M_STAGE",
    "CANCER_TYPE_DETAILED",
}
"""What studies record at diagnosis by its definition; of all else the timing is not known."""
IDENTIFIERS = {"PATIENT_ID", "SAMPLE_ID", "OTHER_PATIENT_ID", "FORM_COMPLETION_DATE"}


def meta(path: Path) -> dict[str, str]:
    """The `key: value` lines of a meta file."""
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    pairs = (line.split(":", 1) for line in lines if ":" in line)
    return {key.strip(): value.strip() for key, value in pairs}


def describe(folder: Path) -> CohortSpec:
    """The cohort description of a study folder.

    Raises
    ------
    InputError
        If the study has no patient file, or no survival status that can be read.
    """
    study = meta(folder / "meta_study.txt")
    patients = _first_file(
        folder, ("data_clinical_patient.txt", "data_bcr_clinical_data_patient.txt")
    )
    if patients is None:
        raise InputError(f"{folder}: no data_clinical_patient.txt; is the download complete?")
    samples = _first_file(folder, ("data_clinical_sample.txt", "data_bcr_clinical_data_sample.txt"))
    table = read_text_table(patients, separator="\t", comment="#")
    ids = "tcga" if table["PATIENT_ID"].str.startswith("TCGA-").mean() > 0.9 else "exact"
    tables: dict[str, Any] = {
        "patients": {"file": patients.name, "key": "PATIENT_ID", "separator": "\t", "comment": "#"}
    }
    variables = _variables("patients", table)
    if samples is not None:
        rows = read_text_table(samples, separator="\t", comment="#")
        tables["samples"] = {
            "file": samples.name,
            "key": "SAMPLE_ID" if ids == "tcga" else "PATIENT_ID",
            "separator": "\t",
            "comment": "#",
            "rows_per_patient": "first",
            "sample_types": ["01"] if ids == "tcga" else [],
        }
        for name, variable in _variables("samples", rows).items():
            variables.setdefault(name, variable)
    spec: dict[str, Any] = {
        "id": study.get("cancer_study_identifier", folder.name),
        "title": study.get("name", folder.name),
        "license": "see the study's LICENSE file",
        "notes": [study["description"]] if "description" in study else [],
        "patient": {"table": "patients", "ids": ids},
        "tables": tables,
        "variables": variables,
        "endpoints": _endpoints(patients, table),
    }
    matrix = _first_file(folder, EXPRESSION)
    if matrix is not None:
        spec["expression"] = _expression(matrix, ids)
    return CohortSpec.model_validate(spec)


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _endpoints(path: Path, table: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, label in ENDPOINTS.items():
        status, months = f"{name}_STATUS", f"{name}_MONTHS"
        if status not in table.columns or months not in table.columns:
            continue
        values = [
            item for item in sorted(table[status].str.strip().unique()) if item not in MISSING
        ]
        event = [
            value for value in values if value.startswith("1") or value.upper() in ("DECEASED",)
        ]
        censored = [
            value for value in values if value.startswith("0") or value.upper() in ("LIVING",)
        ]
        unknown = set(values) - set(event) - set(censored)
        if unknown:
            raise InputError(
                f"{path}: {status} holds {', '.join(sorted(unknown)[:4])}; expected 0:... and "
                "1:.... Write a cohort.toml that says what they mean"
            )
        if event and censored:
            found[name] = {
                "kind": "survival",
                "table": "patients",
                "time": months,
                "time_unit": "months",
                "event": status,
                "event_values": event,
                "censored_values": censored,
                "label": label,
            }
    return found


def _variables(name: str, table: Any) -> dict[str, Any]:
    """Clinical columns by what they hold; outcome columns are left to the endpoints."""
    import pandas as pd

    found: dict[str, Any] = {}
    for column in table.columns:
        outcome = column.endswith(("_STATUS", "_MONTHS")) and column.split("_")[0] in ENDPOINTS
        if column in IDENTIFIERS or outcome:
            continue
        known = table[column].str.strip()
        known = known[~known.isin(MISSING)]
        if known.empty:
            continue
        levels = known.nunique()
        if pd.to_numeric(known, errors="coerce").notna().all() and levels > 2:
            kind = "continuous"
        elif levels == 2:
            kind = "binary"
        elif levels <= 20:
            kind = "categorical"
        else:
            continue
        found[column.lower()] = {
            "table": name,
            "column": column,
            "kind": kind,
            "label": column.replace("_", " ").capitalize(),
            "known_at": "baseline" if column in AT_DIAGNOSIS else None,
        }
    return found


def _expression(path: Path, ids: str) -> dict[str, Any]:
    header = path.open(encoding="utf-8").readline().rstrip("\n").split("\t")
    log = "affymetrix" in path.name or path.name == "data_expression_median.txt"
    return {
        "file": path.name,
        "separator": "\t",
        "symbol": "Hugo_Symbol" if "Hugo_Symbol" in header else header[0],
        "drop": [name for name in ("Entrez_Gene_Id", "Cytoband") if name in header],
        "scale": "log2" if log else "rsem",
        "transform": "none" if log else "log2",
        "unit": "log2 intensity" if log else "log2(RSEM+1)",
        "sample_types": ["01"] if ids == "tcga" else [],
        "known_at": "baseline" if ids == "tcga" else None,  # 01: the primary tumor, at diagnosis
    }

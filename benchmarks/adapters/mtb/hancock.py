"""Patients of a HANCOCK download, with the two questions that its follow-up answers.

Layout as hancock.research.fau.eu/download unpacks: StructuredData/{clinical_data,
pathological_data, blood_data, blood_data_reference_ranges}.json, TextData/<kind>/..._<patient>.txt
(English where there is one), TMA_CellDensityMeasurements/TMA_celldensity_measurements.csv,
WSI_*/..._<patient>.svs.
The benchmark's own questions about images and blood were written by a model and do not follow from
the download.
"""

from __future__ import annotations

import csv
import json
import math
import re
from collections import defaultdict
from pathlib import Path
from typing import Any

from benchmarks.adapters.mtb.types import Loaded, absent_files, reading
from sage.core.errors import InputError
from sage.core.files import read_json
from sage_tumor_board.board.types import (
    BoardQuestion,
    Case,
    CaseFile,
    Key,
    Stage,
    Track,
    kind_of,
    options_of,
)

STRUCTURED = "StructuredData"
TOLD = ("year_of_initial_diagnosis", "age_at_initial_diagnosis", "sex", "smoking_status")
"""Of the clinical table, what is known before the outcome; nothing else of it is handed out."""
TEXTS: tuple[tuple[str, str, str, int], ...] = (
    ("icd_codes", r"SurgeryReports?_ICD_Codes_", "icd_codes.txt", 1),
    ("reports_english", r"SurgeryReport_", "surgery_report.txt", 2),
    ("surgery_descriptions_english", r"SurgeryDescriptionEnglish_", "surgery_descriptions.txt", 2),
    ("ops_codes", r"SurgeryReports?_OPS_Codes_", "ops_codes.txt", 2),
    ("histories_english", r"SurgeryReport_History_", "history_text.txt", 2),
)
"""Folder, start of the file names, the name on the board, and the stage from which it is listed."""
DAY_YEAR = 365.25
YES_NO = "\nA) Yes\nB) No"
_ASKED = "Based on all the available patient information, do you think the patient"
ALIVE = f"{_ASKED} will be alive in 5 years?"
RECURS = f"{_ASKED}'s cancer will have a recurrence in 2 years?"
LARGEST_TEXT = 4 << 20


def read(folder: Path, *, limit: int | None = None) -> Loaded:
    """Patients with an answer to at least one question, in the order of their ids.

    Raises
    ------
    InputError
        If a table is missing, is no list of records, or lacks a column that is needed.
    """
    root = folder.resolve()
    tables = {name: _table(folder, name) for name in ("clinical_data", "pathological_data",
                                                      "blood_data")}  # fmt: skip
    ranges = _inside(folder / STRUCTURED / "blood_data_reference_ranges.json", root)
    shared = _read(ranges) if ranges is not None else None
    cores = _cores(folder, root)
    cases: list[Case] = []
    keys: dict[str, Key] = {}
    for patient, rows in sorted(tables["clinical_data"].items()):
        if limit is not None and len(cases) >= limit:
            break
        answers = _answers(rows[0], folder)
        if not answers:
            continue
        case = _case(patient, rows[0], tables, shared, cores.get(patient, []), folder, root,
                     [text for text, _ in answers])  # fmt: skip
        cases.append(case)
        keys[patient] = Key(case=patient, letters={n: a for n, (_, a) in enumerate(answers, 1)})
    if not cases:
        raise InputError(f"{folder}: no patient has a follow-up that answers a question")
    return Loaded(track=Track.HANCOCK, cases=tuple(cases), keys=keys, said={}, drugs={},
                  absent={case.id: absent_files(case) for case in cases})  # fmt: skip


def _inside(path: Path, root: Path) -> Path | None:
    """The file, if it is one and no link out of the folder."""
    return path if path.is_file() and path.resolve().is_relative_to(root) else None


def _read(path: Path) -> str:
    with reading(path):
        return path.read_text(encoding="utf-8-sig")


def _table(folder: Path, name: str) -> dict[str, list[dict[str, Any]]]:
    path = folder / STRUCTURED / f"{name}.json"
    if _inside(path, folder.resolve()) is None:
        raise InputError(f"{path}: is not there; unpack HANCOCK's StructuredData into {folder}")
    rows = read_json(path)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    if not isinstance(rows, list):
        raise InputError(f"{path}: no list of records")
    for number, row in enumerate(rows, 1):
        if not isinstance(row, dict) or row.get("patient_id") is None:
            raise InputError(f"{path}: record {number} has no patient_id")
        patient = str(row["patient_id"]).zfill(3)
        if re.fullmatch(r"[\w-]{1,40}", patient) is None:
            raise InputError(f"{path}: record {number}: patient_id {patient!r} is no id")
        found[patient].append(row)
    return dict(found)


def _answers(row: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """The questions whose horizon the follow-up reaches, with the right letter."""
    for column in ("survival_status", "days_to_last_information", "recurrence", *TOLD):
        if column not in row:
            raise InputError(
                f"{folder / STRUCTURED}/clinical_data.json: no column {column}; it has:"
                f" {', '.join(sorted(row))[:300]}"
            )
    days = _days(row["days_to_last_information"])
    found = []
    if days is not None and days > 5 * DAY_YEAR:
        found.append((ALIVE + YES_NO, "A"))
    elif days is not None and row["survival_status"] == "deceased":
        found.append((ALIVE + YES_NO, "B"))
    back = _days(row.get("days_to_recurrence")) if row["recurrence"] == "yes" else None
    if back is not None and back <= 2 * DAY_YEAR:
        found.append((RECURS + YES_NO, "A"))
    elif days is not None and days > 2 * DAY_YEAR and (back is not None
                                                       or row["recurrence"] == "no"):  # fmt: skip
        found.append((RECURS + YES_NO, "B"))
    return found


def _days(value: object) -> float | None:
    try:
        days = float(value) if isinstance(value, int | float | str) else math.nan
    except ValueError:
        return None
    return days if math.isfinite(days) else None


def _cores(folder: Path, root: Path) -> dict[str, list[tuple[str, float]]]:
    """Names and percents of positive cells of each patient's cores."""
    path = folder / "TMA_CellDensityMeasurements" / "TMA_celldensity_measurements.csv"
    if _inside(path, root) is None:
        return {}
    found: dict[str, list[tuple[str, float]]] = defaultdict(list)
    with reading(path), path.open(newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        missing = {"Image", "Case ID", "Positive %"} - set(reader.fieldnames or ())
        if missing:
            raise InputError(f"{path}: no column {sorted(missing)[0]!r}")
        for row in reader:
            place = re.search(r"(TumorCenter|InvasionFront)", row["Image"] or "")
            marker = re.search(r"(CD3|CD8|CD56|CD68|CD163|MHC1|PDL1)(?!\d)", row["Image"] or "")
            try:
                patient, share = f"{int(float(row['Case ID'])):03d}", float(row["Positive %"])
            except (TypeError, ValueError, OverflowError):
                continue
            if place is None or marker is None or row.get("Missing") in ("True", "TRUE", "true"):
                continue
            stem = f"TMA_IHC_{place[1]}_{marker[1]}_"
            number = sum(name.startswith(stem) for name, _ in found[patient])
            found[patient].append((f"{stem}{number}.png", share))
    return dict(found)


def _case(
    patient: str, row: dict[str, Any], tables: dict[str, dict[str, list[dict[str, Any]]]],
    ranges: str | None, cores: list[tuple[str, float]], folder: Path, root: Path,
    questions: list[str],
) -> Case:  # fmt: skip
    block = "cut from the block's image by QuPath (the dataset's scripts)"
    files: list[tuple[int, CaseFile]] = [
        (0, CaseFile(name=name, percent_positive=share, missing=block)) for name, share in cores
    ]
    for kind in ("PrimaryTumor", "LymphNode"):
        slides = sorted(folder.glob(f"WSI_{kind}*/**/{kind}_HE_{patient}*.svs"))
        files += [(0, CaseFile(name=s.name, path=s)) for s in slides if _inside(s, root)]
    for name, at in (("pathological", 1), ("blood", 1)):
        own = [{k: v for k, v in item.items() if k != "patient_id"}
               for item in tables[f"{name}_data"].get(patient, [])]  # fmt: skip
        if own:
            text = json.dumps(own if name == "blood" else own[0], ensure_ascii=False)
            files.append((at, CaseFile(name=f"patient_{name}_data.json", text=text)))
    if ranges is not None:
        files.append((1, CaseFile(name="blood_data_reference_ranges.json", text=ranges)))
    told = {name: row.get(name) for name in TOLD}
    clinical = json.dumps(told, ensure_ascii=False)
    files.append((2, CaseFile(name="patient_clinical_data.json", text=clinical)))
    for kind, start, name, at in TEXTS:
        body = _text(folder / "TextData" / kind, start, patient, root)
        if body is not None:
            files.append((at, CaseFile(name=name, text=body)))
    age, sex = row.get("age_at_initial_diagnosis"), row.get("sex")
    contexts = (
        f"In {row.get('year_of_initial_diagnosis')}, a {age}-year-old {sex} presented;"
        f" smoking: {row.get('smoking_status')}. Tissue was taken and stained.",
        "The patient is prepared for surgery of head and neck cancer. Blood was taken.",
        "The patient has been operated on. Report, history and codes are available.",
    )
    stages = tuple(
        Stage(context=told, listed=tuple(file.name for at, file in files if at <= number))
        for number, told in enumerate(contexts)
    )  # fmt: skip
    return Case(
        id=patient, track=Track.HANCOCK, stages=stages, files=tuple(file for _, file in files),
        questions=tuple(
            BoardQuestion(number=n, stage=2, kind=kind_of(Track.HANCOCK, 2, text), text=text,
                          options=options_of(text))
            for n, text in enumerate(questions, 1)
        ),
    )  # fmt: skip


def _text(folder: Path, start: str, patient: str, root: Path) -> str | None:
    wanted = re.compile(rf"{start}{re.escape(patient)}\.txt")
    for path in sorted(folder.glob(f"*_{patient}.txt")) if folder.is_dir() else ():
        if wanted.fullmatch(path.name) and _inside(path, root):
            if path.stat().st_size > LARGEST_TEXT:
                raise InputError(f"{path}: larger than {LARGEST_TEXT >> 20} MiB")
            return _read(path)
    return None

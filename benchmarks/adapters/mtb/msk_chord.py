"""Patients of an MSK-CHORD download, asked at two times of their own follow-up.

Layout as cBioPortal's study `msk_chord_2024` unpacks: data_clinical_patient.txt,
data_clinical_sample.txt, data_timeline_<kind>.txt (days from an origin common to all files of a
patient), data_mutations.txt. Which patients, times and horizons the benchmark asks about does not
follow from the download: here they are drawn by a hash of the id, at a third and two thirds of the
follow-up, twelve months ahead.
"""

from __future__ import annotations

import csv
import hashlib
import json
import math
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.adapters.mtb.types import Loaded, absent_files, reading
from sage.core.errors import InputError
from sage.core.printable import one_line
from sage_tumor_board.board.types import (
    BoardQuestion,
    Case,
    CaseFile,
    Key,
    Stage,
    Track,
    age_of,
    kind_of,
    options_of,
)

PATIENTS = "data_clinical_patient.txt"
MOST_PATIENTS = 40
"""As many as the benchmark has, unless another number is asked for."""
MONTHS = 12
DAY_YEAR = 365.25
DECIDE = {"progression": ("PROGRESSION",), "cancer_presence": ("HAS_CANCER",)}
"""Timelines that hold answers, with the column in which they stand."""
_GROUPS = {
    "treatment": "treatment", "radiation": "treatment", "prior_meds": "treatment",
    "pdl1": "pathology", "mmr": "pathology", "gleason": "pathology",
}  # fmt: skip
_ALONE = frozenset(("surgery", "specimen", "specimen_surgery", "sequencing"))
_UNSAID = frozenset(("PATIENT_ID", "START_DATE", "STOP_DATE", "EVENT_TYPE", "STYLE_COLOR"))


class _Event(NamedTuple):
    day: float
    kind: str
    fields: dict[str, str]


class _Person(NamedTuple):
    fields: dict[str, str]
    born: float
    """Days from the origin to birth, below zero."""
    last: float
    dead: bool


def read(folder: Path, *, limit: int | None = None) -> Loaded:
    """The patients with answers to questions, drawn by a hash of their ids.

    Raises
    ------
    InputError
        If a file or column is missing.
    """
    people = _people(folder)
    drawn = sorted(people, key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    pool = set(drawn[: 10 * (limit or MOST_PATIENTS)])
    events = _events(folder, pool)
    samples = _rows_of(folder / "data_clinical_sample.txt", "PATIENT_ID", pool, "SAMPLE_ID")
    ids = {row["SAMPLE_ID"]: name for name, rows in samples.items() for row in rows
           if row.get("SAMPLE_ID")}  # fmt: skip
    mutations = _rows_of(folder / "data_mutations.txt", "Tumor_Sample_Barcode", set(ids))
    cases: list[Case] = []
    keys: dict[str, Key] = {}
    for name in drawn:
        if name not in pool or len(cases) >= (limit or MOST_PATIENTS):
            break
        own = [row for sample, rows in mutations.items() if ids[sample] == name for row in rows]
        made = _case(name, people[name], events.get(name, []), samples.get(name, []), own)
        if made is not None:
            cases.append(made[0])
            keys[name] = made[1]
    if not cases:
        raise InputError(f"{folder}: no patient has a follow-up that answers a question")
    return Loaded(track=Track.MSK, cases=tuple(cases), keys=keys, said={}, drugs={},
                  absent={case.id: absent_files(case) for case in cases})  # fmt: skip


def _rows(path: Path, needed: tuple[str, ...]) -> Iterator[dict[str, str]]:
    """Rows of a tab-separated file of cBioPortal; lines that start with # are its dictionary."""
    if not path.resolve().is_relative_to(path.parent.resolve()):
        raise InputError(f"{path}: a link out of the folder")
    with reading(path), path.open(encoding="utf-8-sig", newline="") as file:
        lines = (line for line in file if not line.startswith("#"))
        reader = csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
        try:
            known = reader.fieldnames or ()
            for column in needed:
                if column not in known:
                    has = one_line(", ".join(known))[:300] or "nothing"
                    raise InputError(f"{path}: no column {column}; it has: {has}")
            for row in reader:
                yield {key: (value or "").strip() for key, value in row.items()
                       if isinstance(key, str) and not isinstance(value, list)}  # fmt: skip
        except csv.Error as error:
            raise InputError(f"{path}: {error}") from None


def _rows_of(
    path: Path, column: str, wanted: set[str], *more: str
) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = defaultdict(list)
    for row in _rows(path, (column, *more)):
        if row[column] in wanted:
            found[row[column]].append(row)
    return dict(found)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _people(folder: Path) -> dict[str, _Person]:
    path = folder / PATIENTS
    found = {}
    for row in _rows(path, ("PATIENT_ID", "CURRENT_AGE_DEID", "OS_MONTHS", "OS_STATUS")):
        age, months = _number(row["CURRENT_AGE_DEID"]), _number(row["OS_MONTHS"])
        status = row["OS_STATUS"][:2]
        if (age is None or months is None or status not in ("0:", "1:")
                or re.fullmatch(r"[\w-]{1,40}", row["PATIENT_ID"]) is None):  # fmt: skip
            continue
        last = months / 12 * DAY_YEAR
        found[row["PATIENT_ID"]] = _Person(row, last - age * DAY_YEAR, last, status == "1:")
    if not found:
        raise InputError(f"{path}: no patient with CURRENT_AGE_DEID, OS_MONTHS and an OS_STATUS of"
                         " 0:LIVING or 1:DECEASED")  # fmt: skip
    return found


def _events(folder: Path, wanted: set[str]) -> dict[str, list[_Event]]:
    found: dict[str, list[_Event]] = defaultdict(list)
    for kind in DECIDE:  # without them "No" would be the answer to everything
        if not (path := folder / f"data_timeline_{kind}.txt").is_file():
            raise InputError(f"{path}: is not there; unpack the study whole")
    for path in sorted(folder.glob("data_timeline_*.txt")):
        kind = path.stem.removeprefix("data_timeline_")
        for row in _rows(path, ("PATIENT_ID", "START_DATE", *DECIDE.get(kind, ()))):
            day = _number(row["START_DATE"])
            if row["PATIENT_ID"] in wanted and day is not None:
                found[row["PATIENT_ID"]].append(_Event(day, kind, row))
    return {name: sorted(events, key=lambda e: (e.day, e.kind)) for name, events in found.items()}


def _line(event: _Event, person: _Person) -> str:
    """A row of a timeline, as the published ones are written."""
    group = "labtest" if event.kind.endswith("_labs") else _GROUPS.get(event.kind, "diagnosis")
    title = event.kind if event.kind in _ALONE else f"{group} > {event.kind}"
    fields = dict(event.fields)
    said = []
    if event.kind == "progression" and (grown := fields.get("PROGRESSION", "")[:1]) in ("Y", "N"):
        scan = fields.get("PROCEDURE_TYPE") or "A scan"
        said.append(f"{scan} reveals cancer has {'' if grown == 'Y' else 'NOT '}progressed.")
    if "HAS_CANCER" in fields:
        present = fields["HAS_CANCER"]
        word = {"Y": "Yes", "N": "No", "I": "Indeterminate"}.get(present[:1], present)
        said.append(f"HAS CANCER: {word}")
    stop = _number(fields.get("STOP_DATE", ""))
    if stop is not None and stop > event.day:
        said.append(f"STOP_AGE: {_age(stop, person):.3f}")
    said += [f"{key}: {value}" for key, value in fields.items() if value and key not in _UNSAID]
    return f"AGE: {_age(event.day, person):.3f}, {title} --> {', '.join(said)}, "


def _age(day: float, person: _Person) -> float:
    return (day - person.born) / DAY_YEAR


def _case(
    name: str, person: _Person, events: list[_Event], samples: list[dict[str, str]],
    mutations: list[dict[str, str]],
) -> tuple[Case, Key] | None:  # fmt: skip
    past = [event for event in events if event.day <= person.last]
    if len(past) < 4:
        return None
    first = past[0].day
    times = [first + (person.last - first) * part for part in (1 / 3, 2 / 3)]
    sex, kind = person.fields.get("GENDER", ""), _first(samples, "CANCER_TYPE_DETAILED", "cancer")
    files: list[CaseFile] = []
    stages: list[Stage] = []
    questions: list[BoardQuestion] = []
    letters: dict[int, str] = {}
    since = -math.inf
    for number, at in enumerate(times):
        seen = [_line(event, person) for event in past if since < event.day <= at]
        files.append(CaseFile(name=f"timeline{number}.txt", text="\n".join(seen)))
        late = {e.fields.get("SAMPLE_ID") for e in events if e.day > at} - {
            e.fields.get("SAMPLE_ID") for e in past if e.day <= at
        }
        specimen = _specimen(samples, mutations, late) if at >= 0 else ""
        if specimen:
            files.append(CaseFile(name=f"specimen{number}.txt", text=specimen))
        context = f"The patient has {kind}; {sex.lower()}. Records reach to an age of"
        stages.append(Stage(context=f"{context} {_age(at, person):.1f} years.",
                            listed=tuple(file.name for file in files)))  # fmt: skip
        for text, letter in _asked(at, person, events):
            questions.append(BoardQuestion(
                number=len(questions) + 1, stage=number, kind=kind_of(Track.MSK, number, text),
                text=text, options=options_of(text), age=age_of(text),
            ))  # fmt: skip
            letters[len(questions)] = letter
        since = at
    if not questions:
        return None
    case = Case(id=name, track=Track.MSK, stages=tuple(stages), files=tuple(files),
                questions=tuple(questions))  # fmt: skip
    return case, Key(case=name, letters=letters)


def _first(rows: list[dict[str, str]], column: str, otherwise: str) -> str:
    return next((row[column] for row in rows if row.get(column)), otherwise)


def _specimen(
    samples: list[dict[str, str]], mutations: list[dict[str, str]], late: set[str | None]
) -> str:
    """Samples and what was found in them, without those that are taken later.

    The origin of days is when the first was sequenced.
    """
    columns = ("Hugo_Symbol", "HGVSp_Short", "Variant_Classification")
    known = [row for row in samples if row.get("SAMPLE_ID") not in late]
    found = [{c: row[c] for c in columns if row.get(c)} for row in mutations
             if row.get("Tumor_Sample_Barcode") not in late]  # fmt: skip
    return "\n".join(json.dumps(line) for line in [*known, *found])


def _asked(at: float, person: _Person, events: list[_Event]) -> list[tuple[str, str]]:
    """Questions whose horizon the follow-up reaches, with the right letter."""
    end = at + MONTHS / 12 * DAY_YEAR
    whole = person.last >= end
    age = f"Given that the patient is {_age(at, person):.1f} years old, will the"
    found = []
    if whole or person.dead:
        found.append((f"{age} patient be still alive in the next {MONTHS} months?",
                      "A" if whole else "B"))  # fmt: skip
    later = [event for event in events if at < event.day <= end]
    grown = any(e.kind == "progression" and e.fields.get("PROGRESSION", "")[:1] == "Y"
                for e in later)  # fmt: skip
    if grown or whole:
        found.append((f"{age} cancer progress in the next {MONTHS} months?",
                      "A" if grown else "B"))  # fmt: skip
    presence = [e for e in events if e.kind == "cancer_presence" and e.day <= at]
    if presence and presence[-1].fields.get("HAS_CANCER", "")[:1] == "N":
        back = any(e.kind == "cancer_presence" and e.fields.get("HAS_CANCER", "")[:1] == "Y"
                   for e in later)  # fmt: skip
        if back or whole:
            found.append((f"{age} cancer have a recurrence in the next {MONTHS} months?",
                          "A" if back else "B"))  # fmt: skip
    return [(f"{text}\nA) Yes\nB) No", letter) for text, letter in found]

"""Patients built from small files in the shape of HANCOCK's and MSK-CHORD's downloads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.mtb.source import load
from sage.core.errors import InputError
from sage_tumor_board.board.board import Board, Files
from sage_tumor_board.board.types import Track
from tests.end_to_end.harness import sage


def hancock(root: Path, **clinical: Any) -> Path:
    """Three patients: dead in two years with a recurrence, alive after six, lost after one."""
    folder = root / "StructuredData"
    folder.mkdir(parents=True)
    rows = []
    for patient, status, days, back in (
        ("001", "deceased", 700, 200), ("002", "living", 2200, None), ("003", "living", 300, None),
    ):  # fmt: skip
        rows.append({
            "patient_id": patient, "year_of_initial_diagnosis": 2015, "sex": "male",
            "age_at_initial_diagnosis": 60, "smoking_status": "former", "survival_status": status,
            "survival_status_with_cause": "SECRET", "days_to_last_information": days,
            "recurrence": "yes" if back else "no", "days_to_recurrence": back,
            "adjuvant_radiotherapy": "SECRET", **clinical,
        })  # fmt: skip
    (folder / "clinical_data.json").write_text(json.dumps(rows))
    (folder / "pathological_data.json").write_text(
        json.dumps([{"patient_id": "001", "pT_stage": "pT4a", "pN_stage": "pN2b"}])
    )
    blood = {"patient_id": "002", "value": 12.0, "unit": "g/dl", "analyte_name": "Hemoglobin"}
    (folder / "blood_data.json").write_text(json.dumps([blood]))
    (folder / "blood_data_reference_ranges.json").write_text("[]")
    texts = root / "TextData" / "reports_english"
    texts.mkdir(parents=True)
    (texts / "SurgeryReport_001.txt").write_text("The tumor was removed.")
    (root / "TMA_CellDensityMeasurements").mkdir()
    (root / "TMA_CellDensityMeasurements" / "TMA_celldensity_measurements.csv").write_text(
        "Image,Case ID,Missing,Positive %\n"
        "TumorCenter_CD3_block1.svs,1,False,12.5\nTumorCenter_CD3_block1.svs,1,False,9.5\n"
        "InvasionFront_CD8_block1.svs,1,True,3\nInvasionFront_CD163_block1.svs,2,False,7\n"
    )
    return root


def test_hancock_patients_are_asked_what_their_follow_up_answers(tmp_path: Path) -> None:
    (loaded,) = load(hancock(tmp_path))
    assert [case.id for case in loaded.cases] == ["001", "002"]
    assert loaded.keys["001"].letters == {1: "B", 2: "A"}
    assert loaded.keys["002"].letters == {1: "A", 2: "B"}
    first = loaded.cases[0]
    percents = {f.name: f.percent_positive for f in first.files if f.percent_positive is not None}
    assert percents == {"TMA_IHC_TumorCenter_CD3_0.png": 12.5, "TMA_IHC_TumorCenter_CD3_1.png": 9.5}
    assert "SECRET" not in first.model_dump_json()
    assert "days_to" not in first.model_dump_json()
    opened = Board(first, 1).request_files(Files(names=("surgery_report.txt",)))
    assert opened[0].text == "The tumor was removed."


def test_hancock_without_a_table_or_column_says_which(tmp_path: Path) -> None:
    root = hancock(tmp_path / "a")
    (root / "StructuredData" / "blood_data.json").unlink()
    with pytest.raises(InputError, match=r"blood_data\.json: is not there"):
        load(root)
    (root / "StructuredData" / "blood_data.json").write_text("{}")
    with pytest.raises(InputError, match="no list of records"):
        load(root)
    odd = hancock(tmp_path / "b", patient_id="../../etc")
    with pytest.raises(InputError, match="is no id"):
        load(odd)


def test_a_report_that_is_a_link_out_of_the_download_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    root = hancock(tmp_path / "a")
    report = root / "TextData" / "reports_english" / "SurgeryReport_001.txt"
    report.unlink()
    report.symlink_to(tmp_path / "secret.txt")
    (loaded,) = load(root)
    assert "SECRET" not in loaded.model_dump_json()


def table(path: Path, columns: list[str], *rows: list[Any]) -> None:
    """A file of cBioPortal, with its dictionary above."""
    lines = ["#a dictionary", "\t".join(columns)]
    path.write_text("\n".join([*lines, *("\t".join(map(str, row)) for row in rows)]) + "\n")


def msk(root: Path) -> Path:
    """One patient, 60 years old at day 0, dead at 2.8 years; progression after 2.2 years."""
    root.mkdir(exist_ok=True)
    table(root / "data_clinical_patient.txt",
          ["PATIENT_ID", "GENDER", "CURRENT_AGE_DEID", "STAGE_HIGHEST_RECORDED", "OS_MONTHS",
           "OS_STATUS"],
          ["P-1", "Female", 63, "SECRET", 34, "1:DECEASED"])  # fmt: skip
    table(root / "data_clinical_sample.txt",
          ["PATIENT_ID", "SAMPLE_ID", "CANCER_TYPE_DETAILED"],
          ["P-1", "P-1-T01", "Lung Adenocarcinoma"], ["P-1", "P-1-T02", "LATESAMPLE"])  # fmt: skip
    table(root / "data_mutations.txt",
          ["Hugo_Symbol", "Tumor_Sample_Barcode", "HGVSp_Short", "Variant_Classification"],
          ["KRAS", "P-1-T01", "p.G12C", "Missense"],
          ["LATEGENE", "P-1-T02", "p.X", "Missense"])  # fmt: skip
    begin = ["PATIENT_ID", "START_DATE", "STOP_DATE", "EVENT_TYPE"]
    table(root / "data_timeline_cancer_presence.txt", [*begin, "HAS_CANCER"],
          ["P-1", 0, "", "DIAGNOSIS", "Y"], ["P-1", 300, "", "DIAGNOSIS", "N"],
          ["P-1", 800, "", "DIAGNOSIS", "Y"])  # fmt: skip
    table(root / "data_timeline_progression.txt", [*begin, "PROCEDURE_TYPE", "PROGRESSION"],
          ["P-1", 300, "", "DIAGNOSIS", "CT", "N"],
          ["P-1", 800, "", "DIAGNOSIS", "CT", "Y"])  # fmt: skip
    table(root / "data_timeline_treatment.txt", [*begin, "AGENT"],
          ["P-1", 10, 900, "Treatment", "PEMBROLIZUMAB"])  # fmt: skip
    table(root / "data_timeline_specimen.txt", [*begin, "SAMPLE_ID"],
          ["P-1", 0, "", "SPECIMEN", "P-1-T01"],
          ["P-1", 850, "", "SPECIMEN", "P-1-T02"])  # fmt: skip
    table(root / "data_timeline_cea_labs.txt", [*begin, "RESULT"], ["P-1", 20, "", "LAB", 3.1])
    return root


def test_an_msk_patient_is_asked_at_two_times_and_shown_nothing_later(tmp_path: Path) -> None:
    (loaded,) = load(msk(tmp_path))
    (case,) = loaded.cases
    first = [q for q in case.questions if q.stage == 0]
    assert loaded.track is Track.MSK
    assert [q.kind for q in first] == ["outcome", "progression", "recurrence"]
    assert first[0].age == pytest.approx(61.1, abs=0.05)
    board = Board(case, 1)
    opened = board.request_files(Files(names=board.listed))
    shown = json.dumps([item.model_dump() for item in opened])
    assert "HAS CANCER: No" in shown
    assert "CT reveals cancer has NOT progressed" in shown
    assert "STOP_AGE: not yet" in shown
    assert "KRAS" in shown
    for later in ("SECRET", "LATE", "P-1-T02", "has progressed", "62."):
        assert later not in shown + json.dumps(board.contexts)
    key = loaded.keys["P-1"].letters
    assert [key[q.number] for q in first] == ["A", "B", "B"]
    last = [q for q in case.questions if q.stage == 1]
    assert [(q.kind, key[q.number]) for q in last] == [
        ("outcome", "B"), ("progression", "A"), ("recurrence", "A"),
    ]  # fmt: skip


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    table(tmp_path / "data_clinical_patient.txt", ["PATIENT_ID", "AGE"], ["P-1", 60])
    with pytest.raises(InputError, match=r"no column CURRENT_AGE_DEID; it has: PATIENT_ID, AGE"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("data_timeline_progression.txt", None, "is not there; unpack the study whole"),
        ("data_timeline_progression.txt", "", "no column PATIENT_ID; it has: nothing"),
        ("data_timeline_progression.txt", "PATIENT_ID\tSTART_DATE\n", "no column PROGRESSION"),
        ("data_timeline_cancer_presence.txt", "PATIENT_ID\tSTART_DATE\n", "no column HAS_CANCER"),
        ("data_clinical_sample.txt", "PATIENT_ID\tX\nP-1\t\n", "no column SAMPLE_ID"),
        ("data_clinical_sample.txt", None, "No such file"),
        ("data_mutations.txt", "PATIENT_ID\n".encode("utf-16"), "not UTF-8; unpack it again"),
        ("data_timeline_treatment.txt", "PATIENT_ID\t\xc4".encode("latin-1"), "not UTF-8"),
        ("data_clinical_patient.txt", b"\x1f\x8b\x08\xff", "not UTF-8"),
        (
            "data_clinical_patient.txt",
            "PATIENT_ID\tCURRENT_AGE_DEID\tOS_MONTHS\tOS_STATUS\nP-1\t63\t34\tDECEASED\n",
            "OS_STATUS of 0:LIVING or 1:DECEASED",
        ),
    ],
)
def test_a_broken_study_says_what_is_wrong_and_makes_no_key(
    tmp_path: Path, name: str, content: str | bytes | None, words: str
) -> None:
    path = msk(tmp_path) / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError, match=words) as refused:
        load(tmp_path)
    assert name in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "StructuredData/blood_data_reference_ranges.json",
        "TextData/reports_english/SurgeryReport_001.txt",
        "TMA_CellDensityMeasurements/TMA_celldensity_measurements.csv",
    ],
)
def test_a_hancock_file_in_another_encoding_is_named(tmp_path: Path, name: str) -> None:
    (hancock(tmp_path) / name).write_bytes("Übergang, µm".encode("latin-1"))
    with pytest.raises(InputError, match="not UTF-8") as refused:
        load(tmp_path)
    assert name in str(refused.value)


def test_days_of_follow_up_may_be_written_as_text(tmp_path: Path) -> None:
    (loaded,) = load(hancock(tmp_path, days_to_last_information="2200"))
    assert loaded.keys["003"].letters == {1: "A", 2: "B"}


def test_both_downloads_side_by_side_are_asked_by_one_command(tmp_path: Path) -> None:
    hancock(tmp_path / "downloads" / "hancock")
    msk(tmp_path / "downloads" / "msk_chord_2024")
    found = sage("bench", "mtb", "downloads", "--agent", "rules", "--json", cwd=tmp_path).json
    asked = {item["track"]: item["groups"][0]["questions"] for item in found["tracks"]}
    assert asked == {"hancock": 4, "msk": 6}
    ended = sage("bench", "mtb", "downloads", "--agent", "replay", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert "no published conversations" in ended.err


def test_answers_with_other_tools_are_not_taken_up_again(tmp_path: Path) -> None:
    msk(tmp_path / "msk")
    (tmp_path / "drugs.csv").write_text("name,description\nCisplatin,A platinum drug.\n")
    line = ("bench", "mtb", "msk", "--agent", "rules", "--out", "kept")
    asked = []
    for more in ((), (), ("--drugs", "drugs.csv")):
        sage(*line, *more, cwd=tmp_path)
        asked.append(len((tmp_path / "kept" / "rules.msk.jsonl").read_text().splitlines()))
    assert asked == [6, 6, 12]

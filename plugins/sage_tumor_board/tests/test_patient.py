"""A patient's folder: dated content stays out, nothing outside it is read."""

from __future__ import annotations

import json
import os
import time
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from sage.core.clock import now
from sage.core.errors import InputError
from sage_tumor_board.board import Board, Files
from sage_tumor_board.patient import DEFAULT_QUESTION, MOST_FILES, Patient, read_patient

DAY = date(2024, 6, 1)
REPORT = (
    "Squamous cell carcinoma, pT2 pN1, G3.\nResection margin: R0, 0.4 cm.\n"
    "Perineural invasion is not seen. The patient should receive radiotherapy for pT2 pN1.\n"
)
BLOOD = (
    "date,test,value,unit,low,high\n2024-05-02,Hemoglobin,10.1,g/dl,14,17\n"
    "2024-05-02,Potassium,4.0,mmol/l,3.6,4.8\n2024-07-02,Creatinine,9.9,mg/dl,0.6,1.2\n"
)


def patient(root: Path, **files: str | bytes) -> Path:
    """A folder with a report and blood values; more files by name (`__` is a dot)."""
    folder = root / "patient"
    folder.mkdir(exist_ok=True)
    for name, text in {"report__txt": REPORT, "blood__csv": BLOOD, **files}.items():
        content = text.encode() if isinstance(text, str) else text
        (folder / name.replace("__", ".")).write_bytes(content)
    return folder


def read_folder(folder: Path, **more: Any) -> Patient:
    """The folder as it is known on the day."""
    return read_patient(folder, DEFAULT_QUESTION, DAY, **more)


def show_case(found: Patient) -> str:
    """All that a board hands out of a patient."""
    board = Board(found.case, 1)
    opened = board.request_files(Files(names=board.listed))
    return json.dumps([item.model_dump() for item in opened]) + repr(board.contexts)


def test_what_is_dated_later_is_not_there(tmp_path: Path) -> None:
    folder = patient(
        tmp_path, **{
            "2024-07-01 scan__txt": "LATEFILE", "2024-05-01 scan__txt": "EARLYFILE",
            "notes__md": "2024-05-03 EARLYNOTE\nmore\n2024-06-02 LATENOTE\nLATELINE\n"
                         "2024-05-04 EARLYTOO",
            "events__tsv": "x\tdate\n1\t2024-01-01\nLATEROW\t2025-01-01\n",
            "german__csv": "Sample Date;x\n20240101;EARLYROW\n20250101;LATEROW\n",
            "lab__json": '[{"date": "2024-01-01", "x": "EARLYLAB"}, {"date": "2025-01-01", "x":'
                         ' "LATELAB"}]',
            "20990101_x__txt": "LATENAME",
            "odd__txt": "EARLYODD\n  * Date: 2024/07/01 LATEODD",
        },
    )  # fmt: skip
    (folder / "2024-08-01").mkdir()
    (folder / "2024-08-01" / "a.txt").write_text("LATEFOLDER")
    found = read_folder(folder)
    everything = show_case(found) + found.case.model_dump_json()
    for early in ("FILE", "NOTE", "TOO", "ROW", "LAB", "ODD"):
        assert f"EARLY{early}" in everything
    for late in ("LATE", "2024-07", "2024-08", "9.9"):
        assert late not in everything
    assert found.later == ("2024-07-01 scan.txt", "20990101_x.txt", "2024-08-01/a.txt")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("note__txt", "01.07.2024: LATER"),
        ("note__txt", "07/15/2024 LATER"),
        (
            "note__txt",
            "06/01/2024 LATER, or known",
        ),  # read as 6 January or 1 June, the later counts
        ("note__txt", "- 15 Aug 2024: LATER"),
        ("note__txt", "3. März 2025: LATER"),
        ("t__csv", "Datum;test;value\n2024-08-01;LATER;1\n"),
        ("t__csv", "# of the laboratory\ndate,test\n2024-08-01,LATER\n"),
        ("t__csv", f"date,test\n2024-04-01,{'x' * 140_000}\n2024-08-01,LATER\n"),
        ("j__json", '{"visits": [{"date": "2024-08-01", "found": [{"text": "LATER"}]}]}'),
        ("j__json", '[{"visitDate": 20240801, "note": "LATER"}]'),
        ("j__json", '{"2024-08-01": {"note": "LATER"}, "2024-08-02": "LATER"}'),
        ("j__json", '{"date": "2024-08-01", "cut off": {"note": "LATER'),
        ("seen on 01.08.2024__txt", "LATER"),
        ("scan of Aug-2024__txt", "LATER"),
        ("note__txt", "Seen in May. On 3 March 2025 the patient had LATER progression."),
        ("note__txt", "On 3 March 2025 she came.\n\nThe scan of 1 May 2024 is old. It is LATER."),
        ("note__txt", f"{'She felt well ' * 5}and her LATER scan of 3\nMarch 2025 was seen."),
        ("note__txt", "2024-05-01: seen. Again on 2024-08-01: it grew.\nLATER"),
        ("note__txt", "Again on 03.03.25: LATER"),
        ("note__txt", "In March 2025 LATER, 1.5 cm"),
        ("note__txt", "then 12/2024, LATER"),
        ("note__md", "| Mon, 5 Aug 2024 | LATER |"),
        ("t__csv", "test,value,comment\nLATER,1,drawn on 3 August 2024\n"),
        ("j__json", '{"notes": ["Seen.", "In clinic on August 3, 2024: LATER"]}'),
    ],
)
def test_a_day_is_read_as_people_write_it(tmp_path: Path, name: str, text: str) -> None:
    """Later things stay out in other ways of writing a day, in tables and JSON of other shapes."""
    found = read_folder(patient(tmp_path, **{name: text}))
    if "or known" in text:
        assert "LATER" in show_case(found)
        return
    assert "LATER" not in show_case(found)
    assert found.rows_later > 1 or found.later


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("note__txt", "1.5 cm, then 12/2023, KNOWN"),
        ("note__txt", f"{'KNOWN words ' * 9}\n" * 3),
        ("note__txt", "Born 12.03.55, seen on 01.05.24, KNOWN"),
        ("note__txt", f"2024-08-01: {'gone ' * 12}\n2024-05-01: KNOWN"),
        ("t__csv", "id,test\n20250101,KNOWN\n"),
        ("t__csv", "date,test\n01.05.2024,KNOWN\n01.09.2024,gone\n"),
        (
            "j__json",
            '[{"date": "2024-09-01", "n": {"a": 1}}, {"date": "01.05.2024", "t": "KNOWN"}]',
        ),
    ],
)
def test_what_is_known_stays(tmp_path: Path, name: str, text: str) -> None:
    """A number that looks like a day, and text beside a later date, are kept."""
    assert "KNOWN" in show_case(read_folder(patient(tmp_path, **{name: text})))


def test_a_plan_inside_a_note_is_no_later_knowledge_today(tmp_path: Path) -> None:
    folder = patient(tmp_path, note__txt="Seen. Next visit on 1 January 2099. KNOWN")
    assert "KNOWN" in show_case(read_patient(folder, DEFAULT_QUESTION, now().date()))
    assert "KNOWN" not in show_case(read_folder(folder))


def test_a_timeline_by_age_is_cut_at_the_age(tmp_path: Path) -> None:
    rows = "AGE: 60.1, surgery --> EARLY, \nAGE: 61.9, surgery --> LATE, \n  age : 62 --> LATE"
    everything = show_case(read_folder(patient(tmp_path, timeline__txt=rows), age=61.0))
    assert "EARLY" in everything
    assert "LATE" not in everything
    exact = "AGE: 61.052, surgery --> EARLY, \nAGE: 61.085, surgery --> LATE, "
    assert "LATE" not in show_case(read_folder(patient(tmp_path, timeline__txt=exact), age=61.052))


def test_nothing_outside_the_folder_can_be_requested(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    folder = patient(tmp_path)
    board = Board(read_folder(folder).case, 1)
    names = ("../secret.txt", str(tmp_path / "secret.txt"), "./report.txt", "REPORT.TXT",
             "report.txt\n", "", "/etc/passwd", "patient/../../secret.txt")  # fmt: skip
    opened = board.request_files(Files(names=names))
    assert [item.text is None for item in opened] == [
        name.strip() != "report.txt" for name in names
    ]
    assert "SECRET" not in repr(opened)


@pytest.mark.parametrize("inner", ["secret.txt", "more"])
def test_a_link_out_of_the_folder_is_refused(tmp_path: Path, inner: str) -> None:
    (tmp_path / "secret.txt").write_text("SECRET")
    (tmp_path / "more").mkdir()
    (patient(tmp_path) / "link.txt").symlink_to(tmp_path / inner)
    with pytest.raises(InputError, match="a link that leaves the") as refused:
        read_folder(tmp_path / "patient")
    assert "SECRET" not in str(refused.value)


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(patient(tmp_path) / "wait.txt")
    with pytest.raises(InputError, match="not a regular file"):
        read_folder(tmp_path / "patient")


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    folder = patient(tmp_path, a__txt=b"\0\1binary", b__txt="x" * (2 << 20) + "y",
                     c__pdf=b"%PDF", d__csv=b"\xff\xfe\xfa", e__csv='a,"' + "b\n" * 99)  # fmt: skip
    found = read_folder(folder)
    assert set(found.unread) == {"a.txt", "b.txt", "c.pdf", "d.csv"}
    assert "larger than 2 MiB" in found.unread["b.txt"]
    assert "binary" in found.unread["a.txt"]


def test_a_hidden_text_in_a_report_is_shown_or_gone(tmp_path: Path) -> None:
    folder = patient(tmp_path, odd__txt="seen\u202ereversed\x1b[31mred")
    found = read_folder(folder)
    text = next(file.text for file in found.case.files if file.name == "odd.txt")
    assert text is not None
    assert "\u202e" not in text and "\x1b" not in text


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda at: None, "folder not found"),
        (lambda at: at.mkdir(), "no readable file"),
        (lambda at: at.write_text("x"), "folder not found"),
        (lambda at: (at.mkdir(), (at / "scan.pdf").write_text("x")), "save it as text"),
        (lambda at: (at.mkdir(), (at / "a\nb.txt").write_text("x")), "rename it"),
        (lambda at: (at.mkdir(), (at / "2099-01-01.txt").write_text("x")), "dated later: 1"),
    ],
)
def test_bad_folders_are_refused_with_a_clear_message(
    tmp_path: Path, make: Any, words: str
) -> None:
    make(tmp_path / "patient")
    with pytest.raises(InputError, match=words):
        read_folder(tmp_path / "patient")


def test_too_many_files_are_rejected(tmp_path: Path) -> None:
    folder = patient(tmp_path)
    for number in range(MOST_FILES):
        (folder / f"{number}.txt").touch()
    with pytest.raises(InputError, match=f"more than {MOST_FILES} files"):
        read_folder(folder)


@pytest.mark.parametrize(
    "text",
    ["AGE: 1," + " " * 60_000, "{" * 60_000, '"' * 60_000, "T1 " * 20_000,
     '{"' + "date" * 15_000 + "}", "2024-05-01: x. " * 4_000],
)  # fmt: skip
def test_a_text_made_to_be_slow_is_read_in_time(tmp_path: Path, text: str) -> None:
    folder = patient(tmp_path, slow__txt=text, slow__json=text, slow__csv=text)
    began = time.monotonic()
    read_folder(folder, age=61.0)
    assert time.monotonic() - began < 5

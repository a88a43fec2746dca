"""Hostile files handed to the import: bombs, names that lead out, endless fields, formulas."""

from __future__ import annotations

import stat
import time
import zipfile
from pathlib import Path
from unittest.mock import patch

import pytest

from sage.core.errors import InputError
from sage_import.intake import propose, publish
from validation import cohort

GOOD = "patient,age,os_days,os_status\n" + "\n".join(
    f"P{n},{50 + n},{100 + n},{'dead' if n % 2 else 'alive'}" for n in range(30)
)


def packed(path: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def refused(paths: list[Path], said: str) -> None:
    with pytest.raises(InputError, match=said):
        propose(paths)


@pytest.mark.parametrize(
    "name",
    [
        "../evil.csv",
        "/etc/evil.csv",
        "..\\evil.csv",
        "C:\\evil.csv",
    ],
)
def test_a_name_in_an_archive_never_leads_out(tmp_path: Path, name: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    path = packed(home / "a.zip", {name: GOOD.encode(), "good.csv": GOOD.encode()})
    refused([path], "points outside")
    assert sorted(item.name for item in tmp_path.rglob("*")) == ["a.zip", "home"]


def test_a_link_in_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        link = zipfile.ZipInfo("passwd.csv")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    refused([path], "is a link")


def test_a_bomb_ends_early(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.zip", {"bomb.csv": b"0" * (96 << 20)})
    assert path.stat().st_size < 200_000
    refused([path], "expands to")


def test_a_bomb_in_a_workbook_ends_early(tmp_path: Path) -> None:
    path = packed(tmp_path / "a.xlsx", {"xl/worksheets/sheet1.xml": b" " * (96 << 20)})
    refused([path], "MB when unpacked")


def test_a_workbook_of_millions_of_cells_ends_early(tmp_path: Path) -> None:
    """Whatever its rows say, and before more is read than the limit allows."""
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["a", "b"])
    book.save(tmp_path / "good.xlsx")
    cells = "".join(f"<c><v>{at}</v></c>" for at in range(400))
    rows = f"<row>{cells}</row>" * 4000
    with zipfile.ZipFile(tmp_path / "good.xlsx") as source:
        files = {item.filename: source.read(item) for item in source.infolist()}
    stated = {"declared": '<dimension ref="A1:OJ4000"/>', "wrong": '<dimension ref="A1:B2"/>',
              "undeclared": ""}  # fmt: skip
    for name, dimension in stated.items():
        files["xl/worksheets/sheet1.xml"] = (
            f'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main">'
            f"{dimension}<sheetData>{rows}</sheetData></worksheet>"
        ).encode()
        with patch("sage_import.intake.sources.MOST_CELLS", 20_000):
            began = time.monotonic()
            refused([packed(tmp_path / f"{name}.xlsx", files)], "more than 20,000 cells")
        assert time.monotonic() - began < 5  # all 1,600,000 would take longer


def test_ten_thousand_files_and_an_archive_in_an_archive(tmp_path: Path) -> None:
    many = packed(tmp_path / "m.zip", {f"{n}.csv": b"a" for n in range(2100)})
    refused([many], "list the files")
    inner = packed(tmp_path / "i.zip", {"a.csv": GOOD.encode()}).read_bytes()
    refused([packed(tmp_path / "o.zip", {"i.zip": inner})], "no table")


def test_damaged_archives_and_workbooks_are_refused(tmp_path: Path) -> None:
    for name in ("a.zip", "b.xlsx", "c.csv.gz"):
        (tmp_path / name).write_bytes(b"PK\x03\x04 nothing of the kind")
        refused([tmp_path / name], "not a w|not a readable workbook|damaged")


def test_an_entity_bomb_in_a_workbook_is_not_expanded(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    book.active.append(["a", "b"])
    book.save(tmp_path / "good.xlsx")
    bomb = (
        b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaaaa">'
        + b"".join(b'<!ENTITY %c "%s">' % (98 + n, b"&%c;" % (97 + n) * 10) for n in range(9))
        + b"]><worksheet><sheetData><row><c t='inlineStr'><is><t>&j;</t></is></c></row></sheetData>"
        b"</worksheet>"
    )
    with zipfile.ZipFile(tmp_path / "good.xlsx") as source:
        files = {item.filename: source.read(item) for item in source.infolist()}
    files["xl/worksheets/sheet1.xml"] = bomb
    refused([packed(tmp_path / "bomb.xlsx", files)], "not a readable workbook|no table")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (GOOD.replace("P3,", "P\x003,").encode(), "line 5: contains a NUL byte"),
        (b"patient," + b",".join(b"c%d" % n for n in range(50_000)) + b"\n" + b"1," * 50_000,
         "columns"),
        (GOOD.replace("P3,", '"P3,').encode(), "is unterminated|column names"),
        (b"patient,age\nP1," + b"x" * 300_000 + b"\nP2,1\n", "larger than"),
        (b"\xff\xfe\x00", "utf-16"),
        (b"1.5,2.5,3\n2,3,4\n3,4,5\n", "instead of names"),
        ((GOOD + "\nP99,1,2,dead,5,6\n").encode(), "line 32: 6 fields, but 4"),
        (b"a,b\n", "no rows"),
    ],
)  # fmt: skip
def test_files_that_are_no_tables_are_refused_with_the_line(
    tmp_path: Path, content: bytes, said: str
) -> None:
    path = tmp_path / "series.csv"
    path.write_bytes(content)
    refused([path], said)


def test_a_formula_is_never_run_nor_taken_without_its_value(tmp_path: Path) -> None:
    from openpyxl import Workbook

    book = Workbook()
    sheet = book.active
    sheet.append(["patient", "os_days", "os_status"])
    for n in range(20):
        sheet.append([f"P{n}", 100 + n, "dead" if n % 2 else "alive"])
    sheet["B5"] = '=HYPERLINK("http://example.org","x")'
    book.save(tmp_path / "f.xlsx")
    refused([tmp_path / "f.xlsx"], "cell B5: formula without a stored value")


def test_formulas_of_a_csv_are_text(tmp_path: Path) -> None:
    rows = ["patient,os_days,os_status,note"]
    rows += [
        f"P{n},{100 + n},{'dead' if n % 2 else 'alive'},=cmd|'/c calc'!A{n % 3}" for n in range(30)
    ]
    (tmp_path / "f.csv").write_text("\n".join(rows))
    publish(propose([tmp_path / "f.csv"]), tmp_path / "out")
    levels = cohort.load(tmp_path / "out").column("clinical:note").unique()
    assert set(levels) == {f"=cmd|'/c calc'!A{n}" for n in range(3)}


def test_names_of_columns_cannot_write_into_the_description(tmp_path: Path) -> None:
    evil = 'x"\n[tables.other]\nfile = "/etc/passwd'
    quoted = '"' + evil.replace('"', '""') + '"'
    rows = [f"patient,{quoted},age]\x1b[31m,os_days,os_status"]
    rows += [f"P{n},{n % 3}.5,{50 + n},{100 + n},{'dead' if n % 2 else 'alive'}" for n in range(30)]
    (tmp_path / "f.csv").write_text("\n".join(rows), encoding="utf-8")
    publish(propose([tmp_path / "f.csv"]), tmp_path / "out")
    text = (tmp_path / "out" / "cohort.toml").read_text(encoding="utf-8")
    assert "\x1b" not in text
    spec = cohort.load(tmp_path / "out").spec
    assert list(spec.tables) == ["f"] and {table.file for table in spec.tables.values()} == {
        "f.csv"
    }


def test_levels_cannot_write_into_the_description(tmp_path: Path) -> None:
    rows = ["patient,grade,os_days,os_status"]
    words = ['low"}\nx = 1', "high", "low\u2028", "HIGH"]
    for n in range(40):
        word = words[n % 4].replace('"', '""')
        rows.append(f'P{n},"{word}",{100 + n},{"dead" if n % 2 else "alive"}')
    (tmp_path / "f.csv").write_text("\n".join(rows), encoding="utf-8")
    publish(propose([tmp_path / "f.csv"]), tmp_path / "out")
    assert cohort.load(tmp_path / "out").dictionary().n_patients == 40


def test_a_folder_is_not_left_by_a_link(tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text(GOOD)
    study = tmp_path / "study"
    study.mkdir()
    (study / "a.csv").symlink_to(tmp_path / "secret.csv")
    refused([study], "no table")


def test_deep_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("[" * 200_000)
    refused([tmp_path / "a.json"], "invalid JSON")
    (tmp_path / "b.json").write_text('[{"a": ' * 300 + "1" + "}]" * 300)
    refused([tmp_path / "b.json"], "fewer than two|not a list")


def test_the_target_is_not_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(GOOD)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match="is not a folder"):
        publish(propose([tmp_path / "f.csv"]), tmp_path / "out", force=True)
    assert not list((tmp_path / "elsewhere").iterdir())

"""Every file under data/ has one row in data/licenses.tsv, and the notice names its folder."""

from __future__ import annotations

import csv
import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
KNOWN = {"Apache-2.0", "CC-BY-4.0", "CC-BY-3.0", "CC0-1.0"}


def rows() -> list[dict[str, str]]:
    with (DATA / "licenses.tsv").open(encoding="utf-8", newline="") as handle:
        return list(csv.DictReader(handle, delimiter="\t", quoting=csv.QUOTE_NONE))


def test_every_shipped_file_has_one_license() -> None:
    files = [path.relative_to(DATA).as_posix() for path in DATA.rglob("*") if path.is_file()]
    unnamed, matched = [], set()
    for file in files:
        hits = [
            row["files"]
            for row in rows()
            if fnmatch.fnmatchcase(file, row["files"])
            and file.count("/") == row["files"].count("/")
        ]
        matched |= set(hits)
        if len(hits) != 1:
            unnamed.append((file, hits))
    assert not unnamed
    assert matched == {row["files"] for row in rows()}


def test_a_license_is_one_that_goes_with_apache_and_says_its_origin() -> None:
    for row in rows():
        assert set(row["license"].split(" AND ")) <= KNOWN, row
        assert row["origin"], row

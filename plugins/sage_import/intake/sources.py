"""Reading input files: tables, workbooks, archives, study folders, and GDC bundles.

All input is untrusted. Nothing is read beyond these limits, nothing is executed, nothing
is unpacked outside the folder given for it, and links out of a folder are not followed.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import re
import stat
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from sage.core.errors import InputError
from sage.core.hashes import hash_file
from sage_import.intake.frames import FRAMES, cell_text, read_frame
from sage_import.intake.guesses import Corrections, Guess, Loss, make_guess
from sage_import.intake.matrix import (
    RawMatrix,
    join_star_counts,
    parse_matrix,
    parse_mutations,
)
from sage_import.intake.text import (
    MOST_COLUMNS,
    MOST_ROWS,
    RawTable,
    build_table,
    decode,
    detect_delimiter,
    parse_table,
)

MOST_BYTES = 1 << 29
"""Maximum size of an unpacked file, in bytes."""
MOST_PACKED_RATIO = 200
"""Maximum ratio of unpacked to packed size; text tables shrink by a factor of 5 to 50."""
MOST_CELLS = 1_000_000
"""Maximum number of cells in a workbook, since each takes 10 µs to read."""
CELL = re.compile(rb"<(?:[\w.-]+:)?c[\s/>]")
MOST_MEMBERS = 2000
MOST_TABLES = 20
TABLES = (".csv", ".tsv", ".txt", ".tab", ".gct")
BOOKS = (".xlsx", ".xlsm")
CLINICAL = (
    "data_clinical_patient.txt",
    "data_bcr_clinical_data_patient.txt",
    "data_clinical_sample.txt",
    "data_bcr_clinical_data_sample.txt",
)
EXPRESSION = (
    "data_mrna_seq_v2_rsem.txt",
    "data_RNA_Seq_v2_expression_median.txt",
    "data_mrna_seq_rpkm.txt",
    "data_mrna_seq_tpm.txt",
    "data_mrna_seq_fpkm.txt",
    "data_mrna_affymetrix_microarray.txt",
    "data_expression_median.txt",
)
"""Expression matrices in a study, in order of preference."""
MUTATIONS = ("data_mutations.txt", "data_mutations_extended.txt", "data_mutations_mskcc.txt")
GEO_FILE = re.compile(
    r"^(status|submission_date|last_update_date|type|channel_count|.*_protocol.*|contact_.*|"
    r"supplementary_file.*|data_.*|platform_id|molecule.*|label.*|taxid.*|organism.*|relation|"
    r"characteristics.*|instrument_model|library_.*|hyb_.*|scan_.*|description)$"
)
"""GEO sample fields that describe processing rather than the sample."""
MERGED = re.compile(rb'<(?:\w+:)?mergeCell ref="([A-Z]+)(\d+):([A-Z]+)(\d+)"')
NO_TABLES = re.compile(r"^(meta_|readme|license|manifest)", re.IGNORECASE)


@dataclass
class Sources:
    """Contents of the input files before interpretation."""

    tables: list[RawTable] = field(default_factory=list)
    matrices: list[RawMatrix] = field(default_factory=list)
    title: str = ""
    name: str = ""
    losses: list[Loss] = field(default_factory=list)


def read_sources(paths: Iterable[Path], said: Corrections, unpacked: Path) -> Sources:
    """Read the contents of the input files.

    Raises `InputError`, which names the file, the problem, and the remedy.
    """
    found = Sources()
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: file or folder not found")
        found.name = found.name or path.name.split(".")[0]
        folder = path
        if path.is_file() and path.suffix.lower() == ".zip":
            folder = unpacked / str(len(list(unpacked.iterdir())))
            unzip(path, folder)
        if folder.is_dir():
            _folder(folder, said, found)
        else:
            _file(path, said, found)
    found.tables = _stack(found.tables)
    if len(found.tables) > MOST_TABLES:
        raise InputError(f"{len(found.tables)} tables found; give at most {MOST_TABLES} of them")
    if not found.tables:
        what = "only expression or no table" if found.matrices else "no table"
        raise InputError(f"{what} in the input; give a file with one row per patient")
    return found


def _stack(tables: list[RawTable]) -> list[RawTable]:
    """Concatenate tables with the same columns and different patients, such as yearly sheets."""
    import pandas as pd

    kept: dict[tuple[str, ...], RawTable] = {}
    for table in tables:
        columns = tuple(map(str, table.rows.columns))
        first = kept.get(columns)
        if first is None or first.rows[columns[0]].isin(table.rows[columns[0]]).any():
            kept[columns if first is None else (*columns, table.origin)] = table
            continue
        first.rows = pd.concat([first.rows, table.rows], ignore_index=True)
        first.lines += table.lines
        first.losses += table.losses
        first.guesses.append(make_guess(
            "rows", "rows", f"{len(table.rows)} of {table.origin} added",
            "the same columns, and none of the same identifiers", fixed=True))  # fmt: skip
    return list(kept.values())


def unzip(path: Path, folder: Path) -> None:
    """Unpack an archive's tables into `folder`, within the limits.

    Raises `InputError` for a damaged, locked or oversized archive, and for names that lead
    out of the folder.
    """
    packed, total = max(path.stat().st_size, 1), 0
    try:
        with zipfile.ZipFile(path) as archive:
            members = [item for item in archive.infolist() if not item.is_dir()]
            if len(members) > MOST_MEMBERS:
                raise InputError(
                    f"{path}: contains {len(members):,} files; unpack it and list the files to use"
                )
            for item in members:
                place = PurePosixPath(item.filename.replace("\\", "/"))
                if place.is_absolute() or ".." in place.parts or ":" in item.filename:
                    raise InputError(
                        f"{path}: the name {item.filename[:80]!r} points outside the archive's "
                        "folder; nothing was unpacked"
                    )
                if stat.S_ISLNK(item.external_attr >> 16):
                    raise InputError(
                        f"{path}: {item.filename[:80]!r} is a link; archive the file itself"
                    )
                if item.flag_bits & 1:
                    raise InputError(f"{path}: password-protected; unpack it first")
            for item in members:
                place = PurePosixPath(item.filename.replace("\\", "/"))
                if not _is_readable(place.name) or "__MACOSX" in place.parts:
                    continue
                target = folder.joinpath(*place.parts)
                target.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(item) as source, target.open("wb") as out:
                    while block := source.read(1 << 20):
                        total += len(block)
                        if total > MOST_BYTES or total > (1 << 24) + MOST_PACKED_RATIO * packed:
                            raise InputError(
                                f"{path}: expands to more than {total >> 20} MB (packed: "
                                f"{packed >> 10} kB); unpack it yourself and list its tables"
                            )
                        out.write(block)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, OSError, RuntimeError) as error:
        raise InputError(f"{path}: damaged .zip archive: {error}") from None
    if not folder.is_dir():
        raise InputError(f"{path}: contains no table (.csv, .tsv, .txt, .xlsx)")


def _is_readable(name: str) -> bool:
    lower = name.lower().removesuffix(".gz")
    return not name.startswith(".") and lower.endswith((*TABLES, *BOOKS, *FRAMES, ".json"))


def _folder(folder: Path, said: Corrections, found: Sources) -> None:
    """Read a study folder according to its type, or else every table directly in it."""
    home = folder.resolve()
    inner = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    if len(inner) == 1 and inner[0].is_dir():
        _folder(inner[0], said, found)
        return
    files = {
        path.name: path for path in inner if path.is_file() and path.resolve().is_relative_to(home)
    }
    if any(name in files for name in CLINICAL):
        _cbioportal(files, said, found)
        return
    sheet = next(
        (name for name in files if re.match(r"gdc_sample_sheet.*\.(tsv|csv)$", name)), None
    )
    if sheet is not None:
        made = join_star_counts(files[sheet], home)
        if made is not None:
            found.matrices.append(made)
            del files[sheet]
    for name, path in files.items():
        if _is_readable(name) and not NO_TABLES.match(name):
            _file(path, said, found)


def _cbioportal(files: dict[str, Path], said: Corrections, found: Sources) -> None:
    if "meta_study.txt" in files:
        lines = files["meta_study.txt"].read_text(encoding="utf-8-sig").splitlines()
        pairs = (line.partition(":") for line in lines)
        study = {key.strip(): value.strip() for key, _, value in pairs}
        found.title = study.get("name", "")[:300]
        found.name = study.get("cancer_study_identifier", found.name)
    for name in CLINICAL:
        if name in files:
            _file(files[name], said, found)
    matrix = next((name for name in EXPRESSION if name in files), None)
    matrix = matrix or next((name for name in files if name.startswith("data_mrna")), None)
    if matrix is not None:
        found.matrices.append(parse_matrix(files[matrix], _text(files[matrix], said)[0], "\t"))
    mutations = next((name for name in MUTATIONS if name in files), None)
    if mutations is not None:
        cases = files[mutations].parent / "case_lists" / "cases_sequenced.txt"
        table = parse_mutations(files[mutations], _text(files[mutations], said)[0], cases)
        found.tables.append(table)
    used = {*CLINICAL, matrix, mutations}
    found.losses += [
        Loss(what=name, count=1, reason="not a table of patients, mutations, or the matrix used",
             remedy="import the file beside the clinical tables")
        for name in files
        if name.startswith("data_") and name not in used
    ]  # fmt: skip


def _file(path: Path, said: Corrections, found: Sources) -> None:
    lower = path.name.lower().removesuffix(".gz")
    if lower.endswith(BOOKS):
        _book(path, found)
    elif lower.endswith(".json"):
        found.tables.append(_cases(path))
    elif lower.endswith(TABLES):
        text, encoding = _text(path, said)
        if text.startswith("!Series_"):
            _series_matrix(path, text, said, found)
            return
        delimiter, how = detect_delimiter(text, path.name, said.whole.get("delimiter"))
        matrix = parse_matrix(path, text, delimiter, certain=False)
        if matrix is not None:
            found.matrices.append(matrix)
            return
        table = parse_table(text, _name(path.name), path.name, delimiter, said.whole.get("columns"))
        table.guesses = [encoding, how, *table.guesses]
        table.sha256 = hash_file(path)
        found.tables.append(table)
    elif lower.endswith(FRAMES):
        found.tables.append(read_frame(path, _name(path.name)))
    elif lower.endswith((".xls", ".ods", ".rds", ".rdata", ".arff", ".h5")):
        raise InputError(f"{path.name}: this file type is not supported; save it as .csv or .xlsx")
    else:
        raise InputError(
            f"{path.name}: the file name must end in {', '.join(TABLES + FRAMES)}, .xlsx, .json "
            "or .zip"
        )


def _series_matrix(path: Path, text: str, said: Corrections, found: Sources) -> None:
    """Read the samples and matrix of a GEO series; each "name: value" field becomes a column."""
    block = text.partition("!series_matrix_table_begin\n")[2]
    matrix = block.partition("!series_matrix_table_end")[0]
    columns: dict[str, list[str]] = {}
    for fields in csv.reader(io.StringIO(text.partition("!series_matrix")[0]), delimiter="\t"):
        if fields and fields[0].startswith("!Series_title"):
            found.title = fields[1][:300] if len(fields) > 1 else ""
        if not fields or not fields[0].startswith("!Sample_"):
            continue
        name = fields[0].removeprefix("!Sample_")
        for place, cell in enumerate(fields[1:]):
            label, colon, value = cell.partition(": ")
            key = label.strip() if colon and name.startswith("characteristics") else name
            column = columns.setdefault(key, [""] * (len(fields) - 1))
            if place < len(column) and not column[place]:
                column[place] = value if key != name else cell
    if "geo_accession" not in columns:
        raise InputError(f"{path.name}: no !Sample_geo_accession; download the series matrix again")
    names = [
        "geo_accession",
        *(n for n in columns if not GEO_FILE.match(n) and n != "geo_accession"),
    ]
    lines = zip(*(columns[name] for name in names), strict=True)
    rows = [(place, [cell.strip() for cell in line]) for place, line in enumerate(lines, start=2)]
    table = build_table([(1, names), *rows], _name(path.name), path.name)
    table.sha256 = hash_file(path)
    found.tables.append(table)
    if matrix.count("\n") > 2:
        read = parse_matrix(path, matrix, "\t", certain=False)
        if read is not None:
            found.matrices.append(read)
        else:
            found.losses.append(Loss(
                what=f"matrix of {path.name}", count=matrix.count("\n") - 1,
                reason="its rows are probes of an array, not genes",
                remedy="map the probes to symbols by the platform's table, and give that matrix",
            ))  # fmt: skip


def _text(path: Path, said: Corrections) -> tuple[str, Guess]:
    return decode(_bytes(path), path.name, said.whole.get("encoding"))


def _bytes(path: Path) -> bytes:
    """Read a file's content within the limits, decompressing gzip files."""
    if path.stat().st_size > MOST_BYTES:
        raise InputError(f"{path.name}: larger than {MOST_BYTES >> 20} MB")
    if path.suffix.lower() != ".gz":
        return path.read_bytes()
    try:
        with gzip.open(path) as stream:
            data = stream.read(MOST_BYTES + 1)
    except (OSError, EOFError) as error:
        raise InputError(f"{path.name}: damaged .gz file: {error}") from None
    if len(data) > MOST_BYTES:
        raise InputError(f"{path.name}: larger than {MOST_BYTES >> 20} MB when unpacked")
    return data


def _name(file: str) -> str:
    """Derive a table's name in `cohort.toml` from its file name."""
    stem = file.removeprefix("data_").split(".")[0]
    return re.sub(r"[^A-Za-z0-9_]+", "_", stem).strip("_").lower()[:60] or "table"


def _book(path: Path, found: Sources) -> None:
    """Read a workbook's visible sheets as values; macros and external links are never run."""
    from openpyxl import load_workbook

    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(item.file_size for item in archive.infolist())
            if size > min(MOST_BYTES, (1 << 24) + MOST_PACKED_RATIO * path.stat().st_size):
                raise InputError(
                    f"{path.name}: {size >> 20} MB when unpacked; save the sheet as .csv"
                )
            # openpyxl would read all of a sheet that states no dimension before the first row
            cells = sum(len(CELL.findall(archive.read(item))) for item in archive.infolist())
            if cells > MOST_CELLS:
                raise InputError(
                    f"{path.name}: more than {MOST_CELLS:,} cells; save the sheet as .csv, which "
                    "is read without this limit"
                )
        data = io.BytesIO(path.read_bytes())
        book = load_workbook(data, read_only=True, data_only=True, keep_links=False)
        formulas = load_workbook(data, read_only=True, keep_links=False)
        with zipfile.ZipFile(data) as archive:
            unpacked = {item.title: archive.read(item._worksheet_path) for item in book.worksheets}
        for sheet in book.worksheets:
            origin = f"{path.name} [{sheet.title[:40]}]"
            if sheet.sheet_state != "visible":
                found.losses.append(Loss(what=f"sheet {origin}", count=1, reason="hidden",
                                         remedy="show the sheet in the workbook"))  # fmt: skip
                continue
            rows, computed = _cells(sheet, formulas[sheet.title], origin)
            if len(rows) < 2 or max(len(cells) for _, cells in rows) < 2:
                if rows:
                    found.losses.append(Loss(what=f"sheet {origin}", count=len(rows),
                                             reason="no table: one row or one column",
                                             remedy="none needed if it is a note"))  # fmt: skip
                continue
            name = path.name if len(book.worksheets) == 1 else f"{_name(path.name)}_{sheet.title}"
            _fill_down(rows, unpacked[sheet.title])
            table = build_table(rows, _name(name), origin)
            if computed:
                table.guesses.append(
                    make_guess(
                        "formulas",
                        "formulas",
                        f"{computed} cells",
                        "the values saved with the formulas are used",
                    )
                )
            table.sha256 = hash_file(path)
            found.tables.append(table)
    except InputError:
        raise
    except Exception as error:  # noqa: BLE001 - a library's refusal of a damaged workbook
        raise InputError(
            f"{path.name}: not a readable workbook ({type(error).__name__}: {str(error)[:120]}); "
            "save the sheet as .csv"
        ) from None


def _fill_down(rows: list[tuple[int, list[str]]], content: bytes) -> None:
    """Copy the value of a vertically merged cell into every row that it spans."""
    from openpyxl.utils import column_index_from_string

    at = dict(rows)
    for first, top, last, bottom in MERGED.findall(content)[:MOST_ROWS]:
        place = column_index_from_string(first.decode()) - 1
        if first == last and (cells := at.get(int(top))) is not None and place < len(cells):
            for line in range(int(top) + 1, int(bottom) + 1):
                if line in at and place < len(at[line]):
                    at[line][place] = cells[place]


def _cells(sheet: Any, formulas: Any, origin: str) -> tuple[list[tuple[int, list[str]]], int]:
    """Read rows of cells as text, and count the formulas.

    Raises `InputError` for a cell whose formula was saved without its value, and for sheets
    beyond the limits.
    """
    sheet.reset_dimensions()
    formulas.reset_dimensions()
    rows, computed, read = [], 0, 0
    both = zip(sheet.iter_rows(), formulas.iter_rows(), strict=False)
    for number, (values, written) in enumerate(both, start=1):
        if number > MOST_ROWS or len(values) > MOST_COLUMNS:
            raise InputError(f"{origin}: more than {MOST_ROWS:,} rows or {MOST_COLUMNS:,} columns")
        read += len(values)
        if read > MOST_CELLS:
            raise InputError(
                f"{origin}: more than {MOST_CELLS:,} cells; save the sheet as .csv, which is read "
                "without this limit"
            )
        for value, cell in zip(values, written, strict=False):
            if cell.value is not None and cell.data_type == "f":
                computed += 1
                if value.value is None:
                    raise InputError(
                        f"{origin}, cell {cell.coordinate}: formula without a stored value; open "
                        "and save the file in a spreadsheet program, or export it as .csv"
                    )
        cells = [cell_text(value.value) for value in values]
        if any(cells):
            rows.append((number, cells))
    return rows, computed


def _cases(path: Path) -> RawTable:
    """Read GDC's clinical JSON as a row per case with its first diagnosis, named as in the TSV."""
    try:
        cases = json.loads(_bytes(path))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path.name}: invalid JSON ({type(error).__name__})") from None
    if isinstance(cases, dict):
        cases = cases.get("data", {}).get("hits", []) if isinstance(cases.get("data"), dict) else []
    if (
        not isinstance(cases, list)
        or not all(isinstance(case, dict) for case in cases)
        or not cases
    ):
        raise InputError(f"{path.name}: not a list of cases exported from GDC")
    if len(cases) > MOST_ROWS:
        raise InputError(f"{path.name}: more than {MOST_ROWS:,} cases")
    flat = [dict(_flat(case)) for case in cases]
    names = list(dict.fromkeys(name for case in flat for name in case))[:MOST_COLUMNS]
    rows = [
        (number, [case.get(name, "") for name in names])
        for number, case in enumerate(flat, start=1)
    ]
    if len(names) < 2:
        raise InputError(f"{path.name}: the cases have fewer than two fields")
    table = build_table([(0, names), *rows], _name(path.name), path.name)
    table.sha256 = hash_file(path)
    return table


def _flat(value: dict[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, item in value.items():
        name = f"{prefix}{key}"[:200]
        if isinstance(item, dict) and depth < 4:
            yield from _flat(item, f"{name}.", depth + 1)
        elif isinstance(item, list) and item and isinstance(item[0], dict) and depth < 4:
            yield from _flat(item[0], f"{name}.", depth + 1)
        elif isinstance(item, str | int | float):
            yield name, cell_text(item)

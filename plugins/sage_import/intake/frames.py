"""Tables from other programs (Parquet, Arrow, Stata, SAS and SPSS), with their labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.hashes import hash_file
from sage_import.intake.text import MOST_COLUMNS, MOST_ROWS, RawTable, build_table

if TYPE_CHECKING:
    import pandas as pd

FRAMES = (".parquet", ".feather", ".arrow", ".dta", ".xpt", ".sas7bdat", ".sav", ".zsav")


def read_frame(path: Path, name: str) -> RawTable:
    """Read another program's table as strings, with labels in place of coded values.

    Raises `InputError` for damaged files, for files beyond the limits, and if a reader is
    missing.
    """
    try:
        frame, labels = _load(path)
    except (InputError, ModuleNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001 - a library's refusal of a damaged file
        text = f"{type(error).__name__}: {str(error)[:120]}"
        raise InputError(f"{path.name}: not readable ({text}); export it as .csv") from None
    if len(frame) > MOST_ROWS or frame.shape[1] > MOST_COLUMNS:
        raise InputError(f"{path.name}: more than {MOST_ROWS:,} rows or {MOST_COLUMNS:,} columns")
    if frame.index.name or not str(frame.index.dtype).startswith("int"):
        frame = frame.reset_index(names=frame.index.name or "row_name")
    names = [str(column) for column in frame.columns]
    cells = [[cell_text(value) for value in frame.iloc[:, at]] for at in range(len(names))]
    rows = [(place, list(row)) for place, row in enumerate(zip(*cells, strict=True), start=1)]
    table = build_table(rows, name, path.name, names)
    table.labels = {key: text.strip()[:200] for key, text in labels.items() if text}
    table.sha256 = hash_file(path)
    return table


def _load(path: Path) -> tuple[pd.DataFrame, Mapping[str, str]]:
    import pandas as pd

    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return pd.read_parquet(path), {}
    if suffix in (".feather", ".arrow"):
        return _arrow(path), {}
    if suffix == ".dta":
        opened: Any = pd.read_stata(path, iterator=True)
        with opened as reader:
            return reader.read(), reader.variable_labels()
    if suffix in (".xpt", ".sas7bdat"):
        frame = pd.read_sas(path, encoding="latin-1")
        numbers = frame.select_dtypes("number").columns
        tiny = frame[numbers].abs() < 1e-70  # how pandas reads zero in IBM's format
        frame[numbers] = frame[numbers].mask(tiny, 0.0)
        return frame, {}
    require_extra("tables", f"{path.name}: an SPSS file")
    import pyreadstat

    frame, about = pyreadstat.read_sav(path, apply_value_formats=True)
    return frame, about.column_names_to_labels


def _arrow(path: Path) -> pd.DataFrame:
    """Read a table from an Arrow file or stream."""
    import pyarrow as arrow

    with path.open("rb") as stream:
        whole = stream.read(6) == b"ARROW1"
    opened = arrow.ipc.open_file if whole else arrow.ipc.open_stream
    with arrow.OSFile(str(path)) as source:
        frame: pd.DataFrame = opened(source).read_all().to_pandas()
        return frame


def cell_text(value: Any) -> str:
    """Return a value as text: ISO dates, whole numbers without a decimal point, and yes or no."""
    if value is None or value != value or type(value).__name__ in ("NaTType", "NAType"):
        return ""
    if hasattr(value, "isoformat"):
        text = str(value.isoformat())
        return text.removesuffix("T00:00:00")
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return "yes" if value else "no"
    if isinstance(value, float):
        return format(value, ".15g")
    return str(value).strip()

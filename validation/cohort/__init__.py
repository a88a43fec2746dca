"""Load, check and list cohorts: folders with a `cohort.toml`, and built-in data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sage.core.errors import InputError
from validation.core.types import CohortSummary, Finding

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.cohort.model import CohortSpec

__all__ = ["available", "check", "load"]


def load(name_or_dir: str | Path, *, root: Path | None = None, cache: Path | None = None) -> Cohort:
    """Load a cohort by built-in name, `cohort.toml` file, or folder.

    Parameters
    ----------
    name_or_dir : a built-in name ("gbsg2"), a `cohort.toml` file, a folder with such a file,
        or a folder that contains every file in a shipped description (`data/cohorts`)

    Raises
    ------
    InputError
        If nothing with that name exists, or the description does not match the files.
    """
    from validation.cohort import builtin
    from validation.cohort.cohort import Cohort
    from validation.cohort.model import read_spec

    path = Path(name_or_dir)
    if isinstance(name_or_dir, str) and name_or_dir.lower() in builtin.NAMES and not path.exists():
        return builtin.load(name_or_dir.lower())
    if not path.exists():
        raise InputError(
            f'cohort "{name_or_dir}": neither a built-in cohort ({", ".join(builtin.NAMES)}) '
            "nor an existing folder. `sage cohort list` shows all cohorts"
        )
    description = path / "cohort.toml" if path.is_dir() else path
    if description.name.endswith(".toml") and description.is_file():
        spec = read_spec(description)
        folder = root or (description.parent / (spec.root or ".")).resolve()
        if not folder.is_dir():
            raise InputError(f"{description}: root folder {folder} does not exist; pass --root")
        return Cohort(spec, folder, cache=cache)
    shipped = _shipped_for(path)
    if shipped is not None:
        return Cohort(shipped, path, cache=cache)
    raise InputError(f"{path}: cohort.toml not found")


def _shipped_for(folder: Path) -> CohortSpec | None:
    """Find the shipped description whose files are all in `folder`, if any."""
    from sage.core.data import data_folder
    from validation.cohort.model import read_spec

    for path in sorted(data_folder("cohorts").glob("*.toml")):
        spec = read_spec(path)
        files = {table.file for table in spec.tables.values()}
        if spec.expression is not None:
            files.add(spec.expression.file)
        if all((folder / name).is_file() for name in files):
            return spec
    return None


def check(name_or_dir: str | Path, *, root: Path | None = None) -> list[Finding]:
    """Check a cohort; if it does not load, the error is returned as its only finding."""
    from validation.cohort.findings import check_cohort

    try:
        return check_cohort(load(name_or_dir, root=root))
    except InputError as error:
        return [
            Finding(severity="error", code="unreadable", where=str(name_or_dir), message=str(error))
        ]


def available(folders: Sequence[Path] = ()) -> list[CohortSummary]:
    """List the built-in cohorts, and those in the given folders or directly below them."""
    from validation.cohort import builtin
    from validation.cohort.model import read_spec

    found = builtin.summaries()
    for base in folders:
        for path in sorted([base, *base.iterdir()] if base.is_dir() else []):
            if not path.is_dir():
                continue
            if (path / "cohort.toml").is_file():
                try:
                    spec = read_spec(path / "cohort.toml")
                except InputError as error:
                    unread = f"cannot be read: {error}"
                    found.append(CohortSummary(id=path.name, title=unread, kind="folder",
                                               simulated=False, path=str(path)))  # fmt: skip
                    continue
                found.append(
                    CohortSummary(
                        id=spec.id,
                        title=spec.title,
                        kind="folder",
                        simulated=spec.simulated,
                        path=str(path),
                        slides=spec.slides is not None,
                    )
                )
    return found

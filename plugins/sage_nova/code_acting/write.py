"""Session files: the record, and the steps as a program that can be run again."""

from __future__ import annotations

from pathlib import Path

from agents.coding.appendix import Table
from sage.core.files import write_json, write_text
from sage.core.printable import one_line
from sage_nova.code_acting.types import Acted

PROGRAM, RECORD = "analysis.py", "session.json"
CONTINUED = "# ended with an error; the session continued with the partial results"
"""First line of a step that ended with an error but whose results later steps may need."""


def write_session(acted: Acted, folder: Path) -> None:
    """Write `analysis.py` (the kept steps) and, last, `session.json`.

    The program can be run again with `--program analysis.py`; `sage programs promote` turns one of
    its functions into a tool.
    """
    parts = [f"# {one_line(acted.question)}\n"]
    for done in acted.steps:
        if not done.observation.undone:
            went_on = f"{CONTINUED}\n" * bool(done.observation.error)
            parts.append(f"# %% step {done.observation.step}\n{went_on}{done.cell.code.rstrip()}\n")
    write_text(folder / PROGRAM, "\n".join(parts))
    write_json(folder / RECORD, acted.model_dump(mode="json"))


def split_cells(text: str) -> list[str]:
    """Split a program at lines that begin with "# %%", omitting cells without code."""
    cells: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("# %%"):
            cells.append([])
        else:
            cells[-1].append(line)
    kept = [cell for cell in cells if any(line.split("#")[0].strip() for line in cell)]
    return ["\n".join(cell).strip("\n") for cell in kept]


def render_table(table: Table) -> list[str]:
    """Render a table as lines of text."""
    rows = [("", *table.columns), *table.rows]
    return [table.name, *("  ".join(row).strip() for row in rows)]

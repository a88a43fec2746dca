"""A session as files: its record, its programs as one, a notebook."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from agents.coding.appendix import Table
from sage.core.files import write_json, write_text
from sage.core.printable import one_line, printable
from sage_nova.code_acting.types import Acted, Done

RECORD, PROGRAM, NOTEBOOK = "session.json", "analysis.py", "session.ipynb"
WENT_ON = "# ended with an error, and the session went on with what it had done"
"""First line of such a step in a program: what it did before its error, later steps may need."""


def write_session(acted: Acted, folder: Path) -> None:
    """Write `session.json`, `analysis.py` (the steps that stand) and `session.ipynb`.

    The program runs again with `--program analysis.py`, and a function of it can become a tool of
    the user's with `sage tools promote`.
    """
    write_json(folder / RECORD, acted.model_dump(mode="json"))
    write_text(folder / PROGRAM, as_program(acted))
    write_json(folder / NOTEBOOK, as_notebook(acted))


def as_program(acted: Acted) -> str:
    """The steps that stand, as one program in cells."""
    kept = [done for done in acted.steps if not done.observation.undone]
    parts = [f"# {one_line(acted.question)}\n"]
    for done in kept:
        went_on = f"{WENT_ON}\n" * bool(done.observation.error)
        parts.append(f"# %% step {done.observation.step}\n{went_on}{done.cell.code.rstrip()}\n")
    return "\n".join(parts)


def cells_of(text: str) -> list[str]:
    """A program's cells, parted by lines that begin with "# %%"; empty ones left out."""
    cells: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.startswith("# %%"):
            cells.append([])
        else:
            cells[-1].append(line)
    found = ["\n".join(lines).strip("\n") for lines in cells]
    return [
        cell
        for cell in found
        if any(line.strip() and not line.lstrip().startswith("#") for line in cell.splitlines())
    ]


def as_notebook(acted: Acted) -> dict[str, Any]:
    """The session as a Jupyter notebook (nbformat 4.5): thoughts, programs, what they gave.

    It is a record: /inputs and the tools are there in the session alone.
    """
    head = f"# {_safe(acted.question)}\n\n{acted.statement}\n\n" + "\n".join(
        f"- `{seen}`: {_safe(name)}" for seen, name in acted.data.items()
    )
    cells = [_markdown(head, "question")]
    for done in acted.steps:
        number = done.observation.step
        if done.cell.thought.strip():
            cells.append(_markdown(_safe(done.cell.thought), f"thought-{number}"))
        cells.append(_code(done))
    answer = acted.answer
    said = (answer.answer if answer else None) or (answer.reason if answer else acted.error)
    cells.append(_markdown(f"**{acted.outcome.capitalize()}**: {_safe(said)}", "answer"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def table_lines(table: Table) -> list[str]:
    """A table in lines of text."""
    rows = [("", *table.columns), *table.rows]
    return [table.name, *("  ".join(row).strip() for row in rows)]


def _safe(text: str) -> str:
    """A text from outside as Markdown that shows it and does nothing: an image is not fetched."""
    return html.escape(printable(text), quote=False).replace("[", "&#91;")


def _markdown(text: str, name: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def _code(done: Done) -> dict[str, Any]:
    seen = done.observation
    outputs: list[dict[str, Any]] = []
    shown = "\n\n".join("\n".join(table_lines(table)) for table in seen.tables)
    if seen.printed or shown:
        outputs.append({"output_type": "stream", "name": "stdout", "text": seen.printed or shown})
    if seen.value:
        outputs.append(
            {
                "output_type": "execute_result", "execution_count": seen.step, "metadata": {},
                "data": {"text/plain": seen.value},
            }
        )  # fmt: skip
    if seen.error:
        outputs.append(
            {
                "output_type": "error", "ename": "undone" if seen.undone else "error",
                "evalue": seen.error.strip().splitlines()[-1][:300],
                "traceback": seen.error.splitlines(),
            }
        )  # fmt: skip
    return {
        "cell_type": "code", "id": f"step-{seen.step}", "metadata": {},
        "execution_count": seen.step, "source": done.cell.code, "outputs": outputs,
    }  # fmt: skip

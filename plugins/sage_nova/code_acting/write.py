"""Session files: the record, the steps as a program, and a notebook."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from agents.coding.appendix import Table
from sage.core.files import write_json, write_text
from sage.core.printable import clean_text, one_line
from sage_nova.code_acting.types import Acted, Done

RECORD, PROGRAM, NOTEBOOK = "session.json", "analysis.py", "session.ipynb"
CONTINUED = "# ended with an error; the session continued with the partial results"
"""First line of a step that ended with an error but whose results later steps may need."""


def write_session(acted: Acted, folder: Path) -> None:
    """Write `session.json`, `analysis.py` (the kept steps) and `session.ipynb`.

    The program can be run again with `--program analysis.py`; `sage programs promote` turns one of
    its functions into a tool.
    """
    write_json(folder / RECORD, acted.model_dump(mode="json"))
    write_text(folder / PROGRAM, render_program(acted))
    write_json(folder / NOTEBOOK, render_notebook(acted))


def render_program(acted: Acted) -> str:
    """Render the kept steps as a program of cells."""
    kept = [done for done in acted.steps if not done.observation.undone]
    parts = [f"# {one_line(acted.question)}\n"]
    for done in kept:
        went_on = f"{CONTINUED}\n" * bool(done.observation.error)
        parts.append(f"# %% step {done.observation.step}\n{went_on}{done.cell.code.rstrip()}\n")
    return "\n".join(parts)


def split_cells(text: str) -> list[str]:
    """Split a program at lines that begin with "# %%", omitting cells without code."""
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


def render_notebook(acted: Acted) -> dict[str, Any]:
    """Render the session as a Jupyter notebook (nbformat 4.5) of thoughts, programs, outputs.

    The notebook is only a record, since /inputs and the tools exist only in the session.
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
    text = (answer.answer if answer else None) or (answer.reason if answer else acted.error)
    cells.append(_markdown(f"**{acted.outcome.capitalize()}**: {_safe(text)}", "answer"))
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def render_table(table: Table) -> list[str]:
    """Render a table as lines of text."""
    rows = [("", *table.columns), *table.rows]
    return [table.name, *("  ".join(row).strip() for row in rows)]


def _safe(text: str) -> str:
    """Escape untrusted text for Markdown, so that no image is fetched."""
    return html.escape(clean_text(text), quote=False).replace("[", "&#91;")


def _markdown(text: str, name: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": text}


def _code(done: Done) -> dict[str, Any]:
    seen = done.observation
    outputs: list[dict[str, Any]] = []
    shown = "\n\n".join("\n".join(render_table(table)) for table in seen.tables)
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

"""The human checkpoint, as a person meets it: show, decide, edit."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from agents.scientist import variable_problems
from agents.types import Draft, dictionary_view
from agents.wording import describe_design, describe_direction
from sage.errors import InputError
from sage.files import read_json
from sage.machine.state import Decision
from validation.hypothesis import Hypothesis

if TYPE_CHECKING:
    from sage.machine.services import Services


def drafts_of(services: Services, ids: tuple[str, ...]) -> list[Draft]:
    """The drafts that wait, from the run folder."""
    return [Draft.model_validate(read_json(services.folder.output(f"draft-{one}"))) for one in ids]


def show_draft(draft: Draft) -> None:
    """Print a hypothesis in the five-field template, with its evidence on both sides."""
    from rich.panel import Panel
    from rich.table import Table

    from sage.console import out

    hypothesis = draft.hypothesis
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("population", hypothesis.population.description)
    table.add_row("variables", ", ".join(one.variable for one in hypothesis.exposures))
    table.add_row("comparison", describe_design(hypothesis))
    table.add_row("outcome", ", ".join((hypothesis.endpoint, *hypothesis.secondary_endpoints)))
    table.add_row("direction", describe_direction(hypothesis, "survival"))
    table.add_row("covariates", ", ".join(hypothesis.covariates) or "none")
    if hypothesis.strata:
        table.add_row("strata", ", ".join(hypothesis.strata))
    table.add_row("feasibility", hypothesis.feasibility)
    if hypothesis.untested:
        table.add_row("not tested", "; ".join(hypothesis.untested))
    for title, sources in (("for", draft.citations), ("against", draft.contradicting)):
        for one in sources[:4]:
            mark = " RETRACTED" if one.retracted else ""
            where = one.doi or (f"PMID {one.pmid}" if one.pmid else "no identifier")
            table.add_row(title, f"{one.title} ({one.year}; {where}){mark}\n  “{one.quote}”")
    out.print(Panel(hypothesis.statement, title=hypothesis.id, title_align="left"))
    out.print(table)


def edited_hypothesis(services: Services, draft: Draft, changes: dict[str, Any]) -> Hypothesis:
    """The hypothesis with `changes` applied, checked against the template and the dictionary.

    Raises
    ------
    InputError
        If a field is unknown or wrong, or names something that the cohort does not have.
    """
    merged = {**json.loads(draft.hypothesis.model_dump_json()), **changes}
    if merged.get("id") != draft.hypothesis.id:
        raise InputError(f'keep the hypothesis id "{draft.hypothesis.id}"')
    try:
        hypothesis = Hypothesis.model_validate(merged)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "hypothesis"
        raise InputError(f"edited hypothesis, field {field}: {first['msg']}") from None
    named = [one.variable.split(":")[-1] for one in hypothesis.exposures]
    named += [one.variable.split(":")[-1] for one in hypothesis.population.filters]
    problems = variable_problems(hypothesis, dictionary_view(services.dictionary, named))
    if problems:
        raise InputError(f"edited hypothesis: {problems[0]}")
    return hypothesis


def given_decision(services: Services, draft: Draft, action: str, value: object) -> Decision:
    """A decision from command-line options."""
    name = draft.hypothesis.id
    match action:
        case "approve":
            return Decision(hypothesis_id=name, action="approve")
        case "reject":
            return Decision(hypothesis_id=name, action="reject", comment=str(value))
        case "another":
            return Decision(hypothesis_id=name, action="another", comment=str(value))
        case _:
            path = Path(str(value))
            try:
                changes = json.loads(path.read_text(encoding="utf-8"))
            except FileNotFoundError:
                raise InputError(f"--edit: there is no file {path}") from None
            except ValueError as error:
                raise InputError(f"--edit {path}: not JSON ({error})") from None
            if not isinstance(changes, dict):
                raise InputError(f"--edit {path}: give a JSON object with the fields to change")
            edited = edited_hypothesis(services, draft, changes)
            return Decision(hypothesis_id=name, action="edit", edited=edited)


def in_editor(text: str) -> str:
    """`text` as the user leaves it in $VISUAL, $EDITOR or vi.

    Raises
    ------
    InputError
        If the editor cannot be started.
    """
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hypothesis.json"
        path.write_text(text, encoding="utf-8")
        try:
            subprocess.run([*command, str(path)], check=True)
        except (OSError, subprocess.CalledProcessError):
            raise InputError(
                f'the editor "{command[0]}" did not work; set EDITOR, or use --edit FILE'
            ) from None
        return path.read_text(encoding="utf-8")


def decide(services: Services, draft: Draft) -> Decision:
    """Show a draft on the terminal and ask what to do with it."""
    from rich.prompt import Prompt

    from sage.console import err, out

    show_draft(draft)
    name = draft.hypothesis.id
    while True:
        action = Prompt.ask(
            f"{name}: approve, edit, reject or ask for another?",
            choices=["approve", "edit", "reject", "another"],
            console=out,
        )
        if action == "approve":
            return Decision(hypothesis_id=name, action="approve")
        if action in ("reject", "another"):
            question = "Why?" if action == "reject" else "What should it be about?"
            comment = Prompt.ask(question, console=out)
            return given_decision(services, draft, action, comment)
        before = draft.hypothesis.model_dump_json(indent=1)
        text = in_editor(before)
        if text == before:
            err.print("nothing was changed")
            continue
        try:
            edited = edited_hypothesis(services, draft, json.loads(text))
        except (InputError, ValueError) as error:
            err.print(f"[red]{error}[/]")
            continue
        return Decision(hypothesis_id=name, action="edit", edited=edited)

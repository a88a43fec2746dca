"""Terminal review: show each hypothesis, then approve, edit, reject or replace it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.run.questions import describe_carried
from sage.run.review import (
    Edit,
    edited_hypothesis,
    given_decision,
    in_editor,
    show_draft,
    show_edit,
)

if TYPE_CHECKING:
    from agents.core.types import Draft
    from agents.scientist.blind import DesignPower
    from sage.run.services import Services
    from sage.run.state import Decision

NOBODY = (
    "no terminal is available for questions; decide with --approve, --reject REASON, --edit "
    "FILE or --another WISH, or provide the answers line by line on standard input"
)


def ask_line(question: str) -> str:
    """Ask for a line of text, read from the terminal or a pipe.

    Raises
    ------
    InputError
        If standard input has ended.
    """
    from sage.cli.console import out, print_line

    out.print(f"{question} ", end="", markup=False, soft_wrap=True)
    terminal = sys.stdin.isatty()
    try:
        line = input() if terminal else sys.stdin.readline()
    except EOFError:
        raise InputError(NOBODY) from None
    if not terminal:
        print_line(line.rstrip("\n"))
        if not line:
            raise InputError(NOBODY)
    return line.strip()


def choose(question: str, choices: tuple[str, ...]) -> str:
    """Repeat the question until the answer is one of `choices`."""
    from sage.cli.console import print_line

    while True:
        answer = ask_line(f"{question} ({'/'.join(choices)})")
        if answer in choices:
            return answer
        print_line(f"enter {' or '.join(choices)}", err=True)


def decide(services: Services, draft: Draft) -> Decision:
    """Show a draft and ask for the user's decision about it."""
    from sage.cli.console import print_line

    print_line(describe_carried(services.folder, draft.hypothesis))
    show_draft(draft, services.dictionary)
    name = draft.hypothesis.id
    while True:
        action: Any = choose(
            f"{name}: approve, edit, reject or ask for another?",
            ("approve", "edit", "reject", "another"),
        )
        if action == "approve":
            return given_decision(services, draft, action, "")
        if action == "edit":
            try:
                edit = edit_fields(services, draft)
            except InputError as error:
                print_line(error, style="red", err=True)
                continue
            if edit is not None:
                return edit.decision
        elif comment := ask_line("Why?" if action == "reject" else "What should it be about?"):
            return given_decision(services, draft, action, comment)


def edit_fields(services: Services, draft: Draft) -> Edit | None:
    """Edit a draft's fields as JSON in the user's editor, then show the detectable effect.

    No outcome data are used except the number of events.

    Returns
    -------
    The edit, or None if it changes nothing or the person declines it.

    Raises
    ------
    InputError
        If the edited text is not valid JSON, or does not fit the template or the cohort.
    """
    from sage.cli.console import print_line

    text = draft.hypothesis.model_dump_json(indent=1)
    try:
        fields: Any = json.loads(in_editor(text))
    except ValueError as error:
        raise InputError(f"invalid JSON: {error}") from None
    if not isinstance(fields, dict):
        raise InputError("the hypothesis must remain a JSON object")
    if fields.get("statement") == draft.hypothesis.statement:
        del fields["statement"]
    edit = edited_hypothesis(services, draft, fields)
    show_edit(edit)
    if not edit.differences:
        return None
    blind = services.workbench.cohort
    print_line(describe_power(blind.power(edit.hypothesis)), style="cyan")
    return edit if choose("Use this hypothesis?", ("y", "n")) == "y" else None


def describe_power(power: DesignPower) -> str:
    """Describe the group sizes and the detectable effect in one line."""
    if power.refused:
        return f"this hypothesis cannot be tested: {power.refused}"
    groups = []
    if power.exposed is not None and power.reference is not None:
        groups.append(f"{power.exposed} exposed against {power.reference}")
    elif power.patients is not None:
        groups.append(f"{power.patients} patients")
    if power.events is not None:
        groups.append(f"{power.events:.0f} events")
    if power.detectable is not None:
        groups.append(f"detectable with 80% power: {power.scale} {power.detectable:g}")
    if power.power is not None and power.relevant is not None:
        groups.append(f"power for {power.relevant:g}: {power.power:.0%}")
    return "; ".join(groups)

"""The human checkpoint from a person's point of view: show, decide and edit hypotheses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from pydantic import Field, ValidationError

from agents.core.statement import describe_design, describe_direction, settle_fields
from agents.core.types import Draft, dictionary_view
from agents.scientist.agent import variable_problems
from sage.core.errors import InputError, explain_validation
from sage.core.files import read_json
from sage.core.models import Strict
from sage.core.printable import quote_text
from sage.run.state import Action, Decision
from validation.core.hypothesis import Hypothesis

if TYPE_CHECKING:
    from sage.run.services import Services
    from validation.core.dictionary import DataDictionary


def drafts_of(services: Services, ids: tuple[str, ...]) -> list[Draft]:
    """Load the waiting drafts from the run folder."""
    return [
        Draft.model_validate(read_json(services.folder.output(f"draft-{item}"))) for item in ids
    ]


ANSWERS = ("allow_ignore", "allow_respond", "allow_edit", "allow_accept")
"""Answers that a review request accepts."""


class ActionRequest(Strict):
    """A review request: an action and its arguments, in LangGraph's format."""

    action: str
    args: dict[str, Any]


class HumanInterrupt(Strict):
    """A hypothesis waiting for review, with the fields that LangGraph inboxes show."""

    action_request: ActionRequest
    config: dict[str, bool] = dict.fromkeys(ANSWERS, True)
    description: str


def interrupt_of(draft: Draft) -> HumanInterrupt:
    """Build a draft's interrupt, with its editable fields and its statement."""
    fields = json.loads(draft.hypothesis.model_dump_json())
    return HumanInterrupt(
        action_request=ActionRequest(action=f"test {draft.hypothesis.id}", args=fields),
        description=draft.hypothesis.statement,
    )


ACTIONS: dict[str, Action] = {
    "accept": "approve",
    "edit": "edit",
    "response": "another",
    "ignore": "reject",
}
"""Action requested by each response type."""


class HumanResponse(Strict):
    """A person's response, in the fields used by LangGraph inboxes.

    `accept` approves the hypothesis, `edit` applies the changed fields in `args.args`,
    `response` rejects it and requests another, described in `args`; `ignore` rejects it, with
    the reason in `args`. `reviewers` and `comment` are stored with the decision.
    """

    type: Literal["accept", "ignore", "response", "edit"]
    args: ActionRequest | str | None = None
    comment: str = Field(default="", max_length=4000)
    reviewers: tuple[str, ...] = ()

    def decision(self, services: Services, draft: Draft) -> Decision:
        """Convert the response to the decision that the state machine is waiting for.

        Raises
        ------
        InputError
            If a reason or wish is missing, or an edit is not acceptable.
        """
        name, said = draft.hypothesis.id, self.args if isinstance(self.args, str) else ""
        by = f"by {' and '.join(self.reviewers)}" if self.reviewers else ""
        if self.type in ("ignore", "response") and not said.strip():
            raise InputError(
                f"{name}: give the reason for the rejection, or describe the next hypothesis"
            )
        if self.type == "edit":
            if not isinstance(self.args, ActionRequest):
                raise InputError(f"{name}: an edit requires the changed fields in args")
            decision = edited_hypothesis(services, draft, self.args.args).decision
        else:
            action = ACTIONS[self.type]
            decision = Decision(hypothesis_id=name, action=action, comment=said)
        decision = decision.model_copy(update={"reviewers": self.reviewers})
        if self.type == "response":  # a wish goes to the scientist without names
            return decision
        comment = "; ".join(text for text in (decision.comment, by, self.comment) if text)
        return decision.model_copy(update={"comment": comment})


def decisions_from(services: Services, drafts: list[Draft], path: Path) -> tuple[Decision, ...]:
    """Read decisions from a JSON file that maps hypothesis ids to `HumanResponse` objects.

    Raises
    ------
    InputError
        If the file is not readable, or names a hypothesis that is not waiting.
    """
    waiting = {draft.hypothesis.id: draft for draft in drafts}
    try:
        given = json.loads(path.read_text(encoding="utf-8"))
        responses = {name: HumanResponse.model_validate(value) for name, value in given.items()}
    except FileNotFoundError:
        raise InputError(f"--decisions: file {path} not found") from None
    except (ValueError, AttributeError) as error:
        first = str(error).splitlines()[0]
        raise InputError(
            f'--decisions {path}: expected an object like {{"h1": {{"type": "accept"}}}} ({first})'
        ) from None
    strange = sorted(set(responses) - set(waiting))
    if strange or not responses:
        raise InputError(
            f"--decisions {path}: {(strange[0] if strange else 'nothing')} is not waiting for "
            f"review; waiting: {', '.join(waiting)}"
        )
    return tuple(each.decision(services, waiting[name]) for name, each in responses.items())


def show_draft(draft: Draft, dictionary: DataDictionary) -> None:
    """Print a hypothesis in the five-field template, with the passages it cites."""
    from rich.panel import Panel
    from rich.table import Table

    from sage.cli.console import out

    hypothesis = draft.hypothesis
    endpoint = dictionary.endpoint(hypothesis.endpoint)
    kind = endpoint.kind if endpoint else "survival"
    table = Table(show_header=False, box=None, padding=(0, 1))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    table.add_row("population", hypothesis.population.description)
    table.add_row("variables", ", ".join(exposure.variable for exposure in hypothesis.exposures))
    table.add_row("comparison", describe_design(hypothesis, dictionary))
    table.add_row("outcome", ", ".join((hypothesis.endpoint, *hypothesis.secondary_endpoints)))
    table.add_row("direction", describe_direction(hypothesis, kind))
    table.add_row("covariates", ", ".join(hypothesis.covariates) or "none")
    if hypothesis.strata:
        table.add_row("strata", ", ".join(hypothesis.strata))
    table.add_row("feasibility", hypothesis.feasibility)
    if hypothesis.untested:
        table.add_row("not tested", "; ".join(hypothesis.untested))
    if draft.support_absent:
        table.add_row("support", "the search found no passage in support of it")
    for title, sources in (("cited", draft.citations), ("contrary", draft.contradicting)):
        for source in sources[:4]:
            mark = " RETRACTED" if source.retracted else ""
            where = source.doi or (f"PMID {source.pmid}" if source.pmid else "no identifier")
            quote = f"\n  {quote_text(source.quote)}" if source.quote else ""
            table.add_row(title, f"{source.title} ({source.year}; {where}){mark}{quote}")
    out.print(Panel(hypothesis.statement, title=hypothesis.id, title_align="left"))
    out.print(table)


@dataclass(frozen=True)
class Edit:
    """An edited hypothesis and its changes, as a list of (field, before, after)."""

    hypothesis: Hypothesis
    differences: tuple[tuple[str, str, str], ...]

    @property
    def decision(self) -> Decision:
        """The decision that accepts the edit; its comment names the changed fields."""
        names = ", ".join(name for name, _, _ in self.differences)
        return Decision(
            hypothesis_id=self.hypothesis.id,
            action="edit",
            edited=self.hypothesis,
            comment=f"changed by the reviewer: {names or 'nothing'}",
        )


def edited_hypothesis(services: Services, draft: Draft, changes: dict[str, Any]) -> Edit:
    """Apply `changes` to the hypothesis and check it against the template and the dictionary.

    The statement is derived from the fields; any other wording is rejected.

    Raises
    ------
    InputError
        If a field is unknown or invalid, a field's value does not exist in the cohort, or the
        statement itself was edited.
    """
    before = json.loads(draft.hypothesis.model_dump_json())
    changed = {key: value for key, value in changes.items() if value != before.get(key)}
    written = changed.pop("statement", None)
    if changed.get("id", before["id"]) != before["id"]:
        raise InputError(f'the hypothesis ID must remain "{draft.hypothesis.id}"')
    hypothesis = _validate_hypothesis(services, {**before, **changed})
    if written is not None and not _same_words(str(written), hypothesis.statement):
        raise InputError(
            "edited hypothesis, field statement: it is generated from the fields "
            f'("{hypothesis.statement}"). Change exposures, endpoint, direction, comparison or '
            "population instead"
        )
    if hypothesis.statement != draft.hypothesis.statement:
        hypothesis = _without_old_reasons(
            draft.hypothesis, hypothesis, set(changed), services.dictionary
        )
    after = json.loads(hypothesis.model_dump_json())
    return Edit(
        hypothesis=hypothesis,
        differences=tuple(
            (key, _format_value(before.get(key)), _format_value(after.get(key)))
            for key in dict.fromkeys((*before, *after))
            if before.get(key) != after.get(key)
        ),
    )


def _without_old_reasons(
    before: Hypothesis, after: Hypothesis, edited: set[str], known: DataDictionary
) -> Hypothesis:
    """Remove text written for the old claim from a changed claim."""
    design = describe_design(after, known)
    replaced: dict[str, Any] = {
        "rationale": "",
        "feasibility": f"{design[:1].upper()}{design[1:]}: every variable is in the dictionary.",
    }
    if [exposure.variable for exposure in before.exposures] != [
        exposure.variable for exposure in after.exposures
    ]:
        replaced["untested"] = ()
    return after.model_copy(
        update={name: value for name, value in replaced.items() if name not in edited}
    )


def _validate_hypothesis(services: Services, fields: dict[str, Any]) -> Hypothesis:
    """Validate a hypothesis on the run's cohort, and derive its statement from its fields."""
    try:
        hypothesis = Hypothesis.model_validate(fields)
    except ValidationError as error:
        raise InputError(f"edited hypothesis: {explain_validation(error)}") from None
    named = [exposure.variable.split(":")[-1] for exposure in hypothesis.exposures]
    named += [condition.variable.split(":")[-1] for condition in hypothesis.population.filters]
    view = dictionary_view(services.dictionary, named, min_count=0)  # A person may see them all.
    problems = variable_problems(hypothesis, view)
    if problems:
        raise InputError(f"edited hypothesis: {problems[0]}")
    return settle_fields(hypothesis, services.dictionary)


def _same_words(text: str, other: str) -> bool:
    return " ".join(text.lower().rstrip(".").split()) == " ".join(other.lower().rstrip(".").split())


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def show_edit(edit: Edit) -> None:
    """Print an edit's changes, showing each field before and after."""
    from sage.cli.console import err

    for name, before, after in edit.differences:
        err.print(f"[bold]{name}[/]")
        err.print(f"  - {before}", markup=False, highlight=False)
        err.print(f"  + {after}", markup=False, highlight=False)
    if not edit.differences:
        err.print("nothing was changed")


def given_decision(
    services: Services, draft: Draft, action: Action, value: object, *, ask: bool = False
) -> Decision:
    """Build a decision from command-line options; with `ask`, show an edit and confirm it.

    Parameters
    ----------
    value : the comment for "reject" and "another", or the path of a JSON file with the
        changed fields for "edit"; ignored for "approve"
    ask : whether to prompt at the terminal before accepting an edit

    Raises
    ------
    InputError
        If an edit cannot be read, is refused, or is not confirmed.
    """
    if action != "edit":
        comment = "" if action == "approve" else str(value)
        return Decision(hypothesis_id=draft.hypothesis.id, action=action, comment=comment)
    path = Path(str(value))
    try:
        changes = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"--edit: file {path} not found") from None
    except ValueError as error:
        raise InputError(f"--edit {path}: invalid JSON ({error})") from None
    if not isinstance(changes, dict):
        raise InputError(f"--edit {path}: expected a JSON object with the fields to change")
    edit = edited_hypothesis(services, draft, changes)
    show_edit(edit)
    if ask and not typer.confirm("Use this hypothesis?", err=True):
        raise InputError("the edit was not applied; nothing was decided")
    return edit.decision


def in_editor(text: str) -> str:
    """Return `text` as edited by the user in $VISUAL, $EDITOR or vi.

    Raises
    ------
    InputError
        If the editor cannot be started.
    """
    import click

    try:
        return str(click.edit(text, extension=".json", require_save=False))
    except click.ClickException as error:
        raise InputError(f"{error.message}; set EDITOR, or use --edit FILE") from None

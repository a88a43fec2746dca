"""A review at the terminal: decide, or edit field by field and see what could be detected."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from agents.core.types import Draft
from sage.core.errors import InputError
from sage.run.questions import describe_carried
from sage.run.review import (
    Edit,
    edit_decision,
    edited_hypothesis,
    given_decision,
    in_editor,
    show_draft,
    show_edit,
)
from sage.run.state import Decision
from validation.core.hypothesis import Comparison, CutRule, Direction, Hypothesis

if TYPE_CHECKING:
    from agents.scientist.blind import BlindCohort, DesignPower
    from sage.run.services import Services
    from validation.core.dictionary import DataDictionary

HELP = (
    "a field by number or name; add or drop an exposure; json for all fields in your editor; undo;"
    " done; stop"
)
NOBODY = (
    "no terminal to ask on: decide with --approve, --reject REASON, --edit FILE or --another WISH,"
    " or give the answers line by line on standard input"
)


class Asker:
    """Asks a person; TAB completes where the terminal can. A pipe is read line by line."""

    def __init__(self) -> None:
        self.terminal = sys.stdin.isatty()
        self._readline = _readline() if self.terminal else None

    def ask(self, question: str, choices: Sequence[str] = (), default: str = "") -> str:
        """A line of text; an empty one is `default`.

        Raises
        ------
        InputError
            If nobody is there to answer.
        """
        from sage.cli.console import out, print_line

        shown = f"{question} [{default}] " if default else f"{question} "
        if self._readline is not None:
            self._readline.set_completer(completer(choices))
        out.print(shown, end="", markup=False, soft_wrap=True)
        try:
            line = input() if self.terminal else sys.stdin.readline()
        except EOFError:
            raise InputError(NOBODY) from None
        finally:
            if self._readline is not None:
                self._readline.set_completer(None)
        if not self.terminal:
            if not line:
                out.print()
                raise InputError(NOBODY)
            print_line(line.rstrip("\n"))
        return line.strip() or default

    def choose(self, question: str, choices: Sequence[str], default: str = "") -> str:
        """One of `choices`, asked until it is."""
        from sage.cli.console import print_line

        while True:
            answer = self.ask(f"{question} ({'/'.join(choices)})", choices, default)
            if answer in choices:
                return answer
            print_line(f"give one of: {', '.join(choices)}", err=True)


def _readline() -> Any:
    """Line editing with completion; None on a dumb terminal, or without the library."""
    if os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        import readline
    except ImportError:
        return None
    readline.set_completer_delims(" ,\t")
    libedit = "libedit" in (readline.__doc__ or "")
    readline.parse_and_bind("bind ^I rl_complete" if libedit else "tab: complete")
    return readline


def completer(choices: Sequence[str]) -> Callable[[str, int], str | None]:
    """For readline: the choices that begin with what is typed, or hold it after a colon.

    A gene needs no "expression:" before it, whatever its case.
    """

    def complete(text: str, state: int) -> str | None:
        typed = text.casefold()
        first = [item for item in choices if item.casefold().startswith(typed)]
        within = [
            item for item in choices
            if item not in first and item.partition(":")[2].casefold().startswith(typed)
        ]  # fmt: skip
        found = [*first, *within]
        return found[state] if state < len(found) else None

    return complete


def decide(services: Services, draft: Draft) -> Decision:
    """Show a draft and ask what to do with it, on a terminal or line by line."""
    from sage.cli.console import print_line

    asker = Asker()
    print_line(describe_carried(services.folder, draft.hypothesis))
    show_draft(draft, services.dictionary)
    name = draft.hypothesis.id
    while True:
        action = asker.choose(
            f"{name}: approve, edit, reject or ask for another?",
            ("approve", "edit", "reject", "another"),
        )
        if action == "approve":
            return Decision(hypothesis_id=name, action="approve")
        if action in ("reject", "another"):
            question = "Why?" if action == "reject" else "What should it be about?"
            if comment := asker.ask(question):
                return given_decision(services, draft, action, comment)
            continue
        edit = edit_by_fields(services, draft, asker)
        if edit is not None:
            return edit_decision(name, edit)


def edit_by_fields(services: Services, draft: Draft, asker: Asker) -> Edit | None:
    """Edit a draft field by field; after each change the statement and what it could detect.

    Returns
    -------
    The edit that a person took; None where they stopped.
    """
    from agents.scientist.blind import BlindCohort
    from sage.cli.console import err, print_line

    blind = BlindCohort(services.cohort, services.settings.min_count)
    keys = _keys(services.dictionary, blind)
    changes: list[dict[str, Any]] = [{}]
    seen = draft.hypothesis
    _show(seen, blind)
    while True:
        name = asker.ask("field? (? says what can be answered)", [*_fields(seen), *COMMANDS])
        if name in ("?", "help", ""):
            print_line(HELP, err=True)
            continue
        if name == "stop":
            return None
        if name == "undo":
            if len(changes) > 1:
                changes.pop()
            seen = edited_hypothesis(services, draft, changes[-1]).hypothesis
            _show(seen, blind)
            continue
        if name == "done":
            edit = edited_hypothesis(services, draft, changes[-1])
            show_edit(edit)
            if edit.differences and asker.choose("Take the hypothesis so?", ("y", "n")) == "y":
                return edit
            continue
        try:
            if name == "json":
                merged = _from_editor(seen)
            else:
                merged = changes[-1] | _asked(name, seen, services.dictionary, keys, asker)
            edit = edited_hypothesis(services, draft, merged)
        except InputError as error:
            err.print(f"[red]{error}[/]")
            continue
        changes.append(merged)
        seen = edit.hypothesis
        print_line(seen.statement, style="bold")
        _show(seen, blind)


COMMANDS = ("add", "drop", "json", "undo", "done", "stop")
LISTS = ("secondary_endpoints", "covariates", "strata")


def _keys(dictionary: DataDictionary, blind: BlindCohort) -> list[str]:
    """What an exposure or covariate may be: what may be looked at before a contract is frozen."""
    named = [item.key for item in dictionary.variables if not blind.withheld(item.key)]
    return [*named, *(f"expression:{gene}" for gene in dictionary.expression)]


def _fields(hypothesis: Hypothesis) -> dict[str, str]:
    """Each field that is edited by itself, with its value as it is shown."""
    found = {}
    for number, exposure in enumerate(hypothesis.exposures, start=1):
        threshold = "" if exposure.threshold is None else f" at {exposure.threshold:g}"
        value = f"{exposure.level} {exposure.variable or exposure.label}, {exposure.cut}{threshold}"
        found[f"exposure{number}"] = value
    for name in ("comparison", "endpoint", *LISTS, "direction", "population"):
        value = getattr(hypothesis, name)
        if name == "population":
            found[name] = value.description
        else:
            found[name] = ", ".join(value) if isinstance(value, tuple) else str(value)
    return found


def _show(hypothesis: Hypothesis, blind: BlindCohort) -> None:
    from sage.cli.console import print_line

    for number, (name, value) in enumerate(_fields(hypothesis).items(), start=1):
        print_line(f"  {number:2} {name}: {value or 'none'}")
    print_line(f"  {power_line(blind.power(hypothesis))}", style="cyan")


def power_line(power: DesignPower) -> str:
    """Group sizes and what could be detected, in one line; of outcomes only their count is used."""
    if power.refused:
        return f"cannot be tested so: {power.refused}"
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
        groups.append(f"chance to see {power.relevant:g}: {power.power:.0%}")
    return "; ".join(groups)


def _from_editor(hypothesis: Hypothesis) -> dict[str, Any]:
    try:
        found = json.loads(in_editor(hypothesis.model_dump_json(indent=1)))
    except ValueError as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InputError("keep the hypothesis a JSON object")
    if found.get("statement") == hypothesis.statement:
        del found["statement"]
    return found


def _asked(
    name: str, now: Hypothesis, dictionary: DataDictionary, keys: list[str], asker: Asker
) -> dict[str, Any]:
    """The change of one field, as `edited_hypothesis` takes it."""
    fields = list(_fields(now))
    if name.isdigit() and 0 < int(name) <= len(fields):
        name = fields[int(name) - 1]
    exposures = [json.loads(item.model_dump_json()) for item in now.exposures]
    endpoints = [endpoint.key for endpoint in dictionary.endpoints]
    if name == "add":
        return {"exposures": [*exposures, _exposure({}, keys, asker)]}
    if name == "drop":
        if len(exposures) == 1:
            raise InputError("a hypothesis has at least one exposure")
        gone = asker.choose("which?", [str(n + 1) for n in range(len(exposures))])
        del exposures[int(gone) - 1]
        return {"exposures": exposures}
    if name.startswith("exposure") and name in fields:
        at = int(name.removeprefix("exposure")) - 1
        exposures[at] = _exposure(exposures[at], keys, asker)
        return {"exposures": exposures}
    if name == "endpoint":
        chosen = asker.choose("endpoint", endpoints, now.endpoint)
        others = [item for item in now.secondary_endpoints if item != chosen]
        return {"endpoint": chosen, "secondary_endpoints": others}
    if name in ("comparison", "direction"):
        words = [str(item) for item in (Comparison if name == "comparison" else Direction)]
        return {name: asker.choose(name, words, str(getattr(now, name)))}
    if name in LISTS:
        listed = endpoints if name == "secondary_endpoints" else keys
        before = ", ".join(getattr(now, name))
        said = asker.ask(f"{name}, separated by commas; none for none", listed, before)
        items = [] if said == "none" else [_full(item.strip(), listed) for item in said.split(",")]
        return {name: [item for item in items if item]}
    if name == "population":
        return {"population": _population(now, keys, asker)}
    raise InputError(f'no field "{name}"; {HELP}')


def _full(typed: str, keys: Sequence[str]) -> str:
    """The key that a name without its kind means, where there is one such."""
    if typed in keys:
        return typed
    same = [key for key in keys if key.partition(":")[2].casefold() == typed.casefold()]
    return same[0] if len(same) == 1 else typed


def _exposure(now: dict[str, Any], keys: list[str], asker: Asker) -> dict[str, Any]:
    said = asker.ask("variable or gene", keys, now.get("variable", ""))
    variable = _full(said, keys)
    level = asker.choose("exposed are those with it", ("high", "low"), now.get("level", "high"))
    cut = asker.choose("cut", [str(rule) for rule in CutRule], now.get("cut", "median"))
    made = {**now, "variable": variable, "level": level, "cut": cut, "threshold": None}
    if variable != now.get("variable"):
        made["label"] = variable.partition(":")[2] or variable
    if cut == CutRule.FIXED:
        threshold = asker.ask("threshold", (), str(now.get("threshold") or ""))
        try:
            made["threshold"] = float(threshold)
        except ValueError:
            raise InputError(f'threshold: "{threshold[:40]}" is no number') from None
    return made


def _population(now: Hypothesis, keys: list[str], asker: Asker) -> dict[str, Any]:
    """Filters as VARIABLE OP VALUE, one after the other; the description follows from them."""
    population: dict[str, Any] = json.loads(now.population.model_dump_json())
    said = asker.ask('add a filter, as "clinical:stage ge 3"; none removes all', [*keys, "none"])
    if said == "none":
        return population | {"filters": []}
    parts = said.split(maxsplit=2)
    if len(parts) < 2 or (len(parts) < 3 and parts[1] != "present"):
        raise InputError("a filter is VARIABLE OP VALUE; OP: eq ne in lt le gt ge present")
    value: Any = None
    if len(parts) == 3:
        values = [_number(item.strip()) for item in parts[2].split(",")]
        value = values if parts[1] == "in" else values[0]
    added = {"variable": _full(parts[0], keys), "op": parts[1], "value": value}
    return population | {"filters": [*population["filters"], added]}


def _number(text: str) -> str | float:
    try:
        return float(text)
    except ValueError:
        return text

"""The orchestrator: from a request in words to tools that ran, with provenance.

A plan is data: steps that name a tool, its arguments, and which earlier result an argument takes.
It is made by a registered composition, by the tools' descriptions, or by a model that was given
them; whoever made it, every step is checked against its tool's schema before anything runs.

Source: SAGE, appendix B.4.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from mcp_servers.registry import explain
from sage.core.errors import InputError

Complete = Callable[[str, str], str]
"""A language model: system text and user text to a reply."""

REPAIRS = 2
"""How often a model may mend a plan that does not fit."""
MOST_STEPS = 8


class Closed(BaseModel):
    """Refuses unknown fields."""

    model_config = ConfigDict(extra="forbid")


class Reference(Closed):
    """A value that an earlier step's result holds under `field`."""

    step: str
    field: str


class Step(Closed):
    """One call. `uses` fills arguments from earlier steps."""

    id: str
    tool: str
    arguments: dict[str, Any] = Field(default_factory=dict)
    uses: dict[str, Reference] = Field(default_factory=dict)
    why: str = ""


class Plan(Closed):
    """Steps in order, and who chose them."""

    steps: list[Step] = Field(min_length=1, max_length=MOST_STEPS)
    method: Literal["composition", "descriptions", "model"] = "descriptions"
    name: str = ""
    notes: list[str] = Field(default_factory=list)


class ToolCard(BaseModel):
    """What is known of a tool before it runs, wherever it lives."""

    model_config = ConfigDict(frozen=True)

    name: str
    suite: str
    summary: str
    description: str
    input_schema: dict[str, Any]
    output_fields: tuple[str, ...] = ()


class StepResult(BaseModel):
    """What one step returned. Files are paths that other steps can read."""

    id: str
    tool: str
    host: str
    why: str
    result: dict[str, Any]
    files: list[str]
    provenance: dict[str, Any]


class Orchestrated(BaseModel):
    """A request that was carried out."""

    request: str
    method: str
    plan: str
    steps: list[StepResult]
    notes: list[str]


class ToolHost(Protocol):
    """Somewhere tools run: workers here, or an MCP server elsewhere."""

    name: str

    def cards(self) -> list[ToolCard]:
        """The tools there."""
        ...

    def call(
        self, tool: str, arguments: dict[str, Any], report: Callable[[float, str], None]
    ) -> tuple[dict[str, Any], list[str], dict[str, Any]]:
        """Run one tool: its result, its files, its provenance."""
        ...


class Orchestrator:
    """Chooses tools for a request and runs them over one or more hosts."""

    def __init__(self, hosts: list[ToolHost], complete: Complete | None = None) -> None:
        """Take tools from `hosts`, the first that has a name wins; `complete` is optional."""
        self.complete = complete
        self.cards: dict[str, ToolCard] = {}
        self.homes: dict[str, ToolHost] = {}
        for host in hosts:
            for card in host.cards():
                if card.name not in self.cards:
                    self.cards[card.name] = card
                    self.homes[card.name] = host

    def plan(self, request: str, inputs: Mapping[str, Any] | None = None) -> Plan:
        """Choose tools for a request.

        Registered compositions come first: they are known to fit. Then the model, when there is
        one; else the tools whose descriptions match best.

        Parameters
        ----------
        inputs : named values that tools may take, e.g. {"slide": "a.svs"}

        Raises
        ------
        InputError
            If nothing fits, or an argument is missing; the message says which tools are near.
        """
        from mcp_servers.orchestrator_select import by_composition, by_descriptions

        given = dict(inputs or {})
        plan = by_composition(request, self.cards, given)
        if plan is None and self.complete is not None:
            return self._by_model(request, given, self.complete)
        if plan is None:
            plan = by_descriptions(request, self.cards, given)
        problem = self.problem(plan)
        if problem is not None:
            raise InputError(problem)
        return plan

    def problem(self, plan: Plan) -> str | None:
        """Why a plan cannot run, in words, or None."""
        before: dict[str, ToolCard] = {}
        for step in plan.steps:
            card = self.cards.get(step.tool)
            if card is None:
                return f'no tool is called "{step.tool}"; there are: {", ".join(self.cards)}'
            properties = card.input_schema.get("properties", {})
            given = set(step.arguments) | set(step.uses)
            unknown = sorted(given - set(properties))
            if unknown:
                return f"{step.tool} takes no {', '.join(unknown)}; it takes {list(properties)}"
            missing = [one for one in card.input_schema.get("required", ()) if one not in given]
            if missing:
                return f"{step.tool} needs {', '.join(missing)}; give it as an input"
            for argument, reference in step.uses.items():
                source = before.get(reference.step)
                if source is None:
                    return f"{step.tool}: {argument} refers to no earlier step {reference.step}"
                if source.output_fields and reference.field not in source.output_fields:
                    return f"{source.name} returns no {reference.field}"
            if step.id in before:
                return f"two steps are called {step.id}"
            before[step.id] = card
        return None

    def _by_model(self, request: str, given: dict[str, Any], complete: Complete) -> Plan:
        tools = "\n\n".join(card.description for card in self.cards.values())
        system = SYSTEM.format(schema=json.dumps(Plan.model_json_schema()), most=MOST_STEPS)
        user = f"Tools:\n{tools}\n\nInputs: {json.dumps(given)}\n\nRequest: {request}"
        said = ""
        for _ in range(REPAIRS + 1):
            reply = complete(system, user + said)
            try:
                text = reply[reply.index("{") : reply.rindex("}") + 1]
                plan = Plan.model_validate_json(text)
                problem = self.problem(plan)
            except ValidationError as error:
                problem = explain(error)
            except ValueError:
                problem = "the reply holds no JSON object"
            if problem is None:
                return plan.model_copy(update={"method": "model"})
            said = f"\n\nYour last plan does not fit: {problem}. Reply with a corrected plan."
        raise InputError(f"the model made no plan that fits: {problem}")

    def run(
        self,
        request: str,
        inputs: Mapping[str, Any] | None = None,
        report: Callable[[float, str], None] | None = None,
    ) -> Orchestrated:
        """Plan and carry out a request; the steps' results come with their provenance.

        Raises what the tools raise, with the step's number in front.
        """
        plan = self.plan(request, inputs)
        return self.carry_out(plan, request, report)

    def carry_out(
        self,
        plan: Plan,
        request: str = "",
        report: Callable[[float, str], None] | None = None,
    ) -> Orchestrated:
        """Run a plan that was checked."""
        done: dict[str, StepResult] = {}
        total = len(plan.steps)
        for at, step in enumerate(plan.steps):

            def tell(fraction: float, message: str, at: int = at, step: Step = step) -> None:
                if report is not None:
                    report((at + fraction) / total, f"{step.tool}: {message}".rstrip(": "))

            arguments = dict(step.arguments)
            for name, reference in step.uses.items():
                value = done[reference.step].result.get(reference.field)
                if value is None:
                    raise InputError(
                        f"step {at + 1} ({step.tool}): {reference.step} returned no "
                        f"{reference.field}"
                    )
                arguments[name] = value
            tell(0.0, "")
            host = self.homes[step.tool]
            try:
                result, files, provenance = host.call(step.tool, arguments, tell)
            except InputError as error:
                raise InputError(f"step {at + 1} ({step.tool}): {error}") from error
            done[step.id] = StepResult(
                id=step.id,
                tool=step.tool,
                host=host.name,
                why=step.why,
                result=result,
                files=files,
                provenance=provenance,
            )
        return Orchestrated(
            request=request,
            method=plan.method,
            plan=plan.name,
            steps=list(done.values()),
            notes=plan.notes,
        )


SYSTEM = """You plan calls of tools for computational pathology and clinical oncology.
Reply with one JSON object of this schema and nothing else: {schema}
At most {most} steps. Use only the tools listed. An argument that an earlier step produces goes into
`uses`, as the step's id and the field of its result; everything else into `arguments`, taken from
the inputs or the request. Do not invent paths. `why` says in a few words what the step is for."""

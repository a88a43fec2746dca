"""Prompts that a client offers its user, and completion of prompt arguments."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mcp_types as types
from mcp.shared.exceptions import MCPError

FOLDER = Path(__file__).with_name("prompts")
LONGEST = 500
"""Maximum length of an argument, in characters."""


@dataclass(frozen=True)
class PromptSpec:
    """A prompt; its text is in `prompts/NAME.md`, where {argument} is a placeholder."""

    name: str
    title: str
    description: str
    arguments: dict[str, str]


PROMPTS = {
    prompt.name: prompt
    for prompt in (
        PromptSpec(
            "slides_and_survival",
            "Measure slides and compare survival",
            "Measure something on the slides of a cohort and relate it to an outcome",
            {
                "measurement": 'What to measure, e.g. "tertiary lymphoid structures per mm²"',
                "slides": "Folder of the slides",
                "cohort": "Cohort with the outcomes",
                "endpoint": 'Endpoint, e.g. "OS"',
            },
        ),
        PromptSpec(
            "know_a_cohort",
            "Get to know a cohort",
            "Contents of a cohort, and problems that could mislead an analysis",
            {"cohort": "Cohort to describe"},
        ),
        PromptSpec(
            "test_a_question",
            "Test a question on a cohort",
            "A complete run: hypotheses, review, a contract fixed before the outcomes, a verdict",
            {"question": "The research question", "cohort": "Cohort to test it on"},
        ),
    )
}


async def list_prompts(ctx: Any, params: Any) -> types.ListPromptsResult:
    """List all prompts with their arguments."""
    return types.ListPromptsResult(
        prompts=[
            types.Prompt(
                name=prompt.name,
                title=prompt.title,
                description=prompt.description,
                arguments=[
                    types.PromptArgument(name=name, description=text, required=True)
                    for name, text in prompt.arguments.items()
                ],
            )
            for prompt in PROMPTS.values()
        ]
    )


async def get_prompt(ctx: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
    """Return a prompt's text with arguments filled in.

    Raises `MCPError` if the arguments are wrong.
    """
    name, arguments = params.name, params.arguments or {}
    prompt = PROMPTS.get(name)
    if prompt is None:
        raise MCPError(types.INVALID_PARAMS, f'unknown prompt "{name}"')
    if set(arguments) != set(prompt.arguments):
        needed = ", ".join(prompt.arguments)
        raise MCPError(types.INVALID_PARAMS, f"{name} requires exactly these arguments: {needed}")
    for key, value in arguments.items():
        if len(value) > LONGEST:
            raise MCPError(types.INVALID_PARAMS, f"{key} has more than {LONGEST} characters")
    places = re.compile(r"\{(" + "|".join(prompt.arguments) + r")\}")
    text = (FOLDER / f"{name}.md").read_text(encoding="utf-8").strip()
    filled = places.sub(lambda place: arguments[place.group(1)], text)
    message = types.PromptMessage(role="user", content=types.TextContent(text=filled))
    return types.GetPromptResult(description=prompt.description, messages=[message])

"""Program that runs the steps inside the sandbox, taking tool results from a record.

It is copied into the sandbox next to `session.json` and imports nothing from SAGE. A tool
call without a recorded result writes a request and ends the process; the next process
runs the same steps again and finds the result. Programs therefore need no way out of the
sandbox, and a finished session is a program that can be run from the beginning.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import io
import json
import linecache
import os
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

Answers: TypeAlias = dict[str, dict[str, Any]]

WORK, OUT = Path("/work"), Path("/output")
OWN = "_sage"
MOST_PRINTED, MOST_VALUE, MOST_ERROR = 8000, 3000, 3000


class ToolError(Exception):
    """Error from a tool that returned no result; the message contains the reason."""


def hash_call(tool: str, arguments: dict[str, Any], again: int) -> str:
    """Hash a call for the record; `again` counts earlier calls with the same arguments."""
    text = json.dumps([tool, arguments, again], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def to_json(value: Any) -> Any:
    """Convert paths, arrays, and sets to JSON types."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"a tool does not accept values of type {type(value).__name__}")


def truncate(text: str, limit: int) -> str:
    """Shorten a text longer than `limit` by removing its middle."""
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}\n[{len(text) - limit} characters omitted]\n{text[-limit // 2 :]}"


class Tools:
    """Tools whose results come from the record."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()

    def together(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Return results for many (tool, arguments) calls, with a `ToolError` for each failure."""
        asked = [self._count(name, given) for name, given in calls]
        missing = [call for call in asked if hash_call(*call) not in self.answers]
        if missing:
            write_output("request", missing)
            sys.stdout.flush()
            os._exit(0)
        found = []
        for call in asked:
            answer = self.answers[hash_call(*call)]
            error = answer.get("error")
            found.append(answer.get("result") if error is None else ToolError(error))
        return found

    def _count(self, name: str, given: dict[str, Any]) -> list[Any]:
        call = json.loads(json.dumps([str(name), given], default=to_json))
        key = hash_call(call[0], call[1], 0)
        self.asked[key] += 1
        return [*call, self.asked[key] - 1]

    def function(self, name: str) -> Callable[..., Any]:
        """Make a function that calls a tool with keyword arguments."""

        def call(**given: Any) -> Any:
            found = self.together([(name, given)])[0]
            if isinstance(found, ToolError):
                raise found
            return found

        call.__name__ = call.__qualname__ = name
        return call


def write_output(name: str, value: object) -> None:
    """Write a file for the process outside the sandbox."""
    (OUT / OWN).mkdir(exist_ok=True)
    (OUT / OWN / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


def run_step(number: int, code: str, space: dict[str, Any]) -> dict[str, str]:
    """Run a step in the namespace; return its printed text, last value, and error."""
    name = f"step_{number}"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    printed, value, error = io.StringIO(), "", ""
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            tree = ast.parse(code, name)
            last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
            exec(compile(tree, name, "exec"), space)  # noqa: S102 - this is the sandbox
            if isinstance(last, ast.Expr):
                shown = eval(compile(ast.Expression(last.value), name, "eval"), space)  # noqa: S307
                value = "" if shown is None else repr(shown)
        except BaseException as wrong:  # noqa: BLE001 - every error is reported to the agent
            lines = traceback.format_exception(wrong)
            shown = "".join(line for line in lines if f'"{__file__}"' not in line).splitlines(True)
            error = "".join(line for line in shown if line.strip(" ^~\n"))
    return {
        "printed": truncate(printed.getvalue(), MOST_PRINTED),
        "value": truncate(value, MOST_VALUE),
        "error": truncate(error, MOST_ERROR),
    }


def main() -> None:
    """Run the steps in `session.json` and write the output of the last step."""
    session = json.loads((WORK / "session.json").read_text(encoding="utf-8"))
    tools = Tools(session["answers"])
    space: dict[str, Any] = {"__name__": "__session__", "ToolError": ToolError}
    space |= {name: tools.function(name) for name in session["tools"]}
    space["call_together"] = tools.together
    os.chdir(OUT)
    run_step(0, session["begin"], {})
    seen: dict[str, str] = {}
    for number, code in session["steps"]:
        seen = run_step(number, code, space)
    write_output("seen", seen)


if __name__ == "__main__":
    main()

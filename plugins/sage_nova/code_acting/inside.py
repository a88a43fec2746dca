"""What runs in the sandbox: the steps so far, in one namespace, with tools answered from a record.

Read as text and handed to the sandbox beside `session.json`; it imports nothing of ours. A tool
call without a recorded answer ends the process and leaves the request in a file: the next process
runs the same steps again and finds the answer. So a program needs no way out of its sandbox, and a
finished session is one program that runs from its start.
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
    """A tool gave no result; the message says why."""


def key_of(tool: str, arguments: dict[str, Any], again: int) -> str:
    """The name of a call in the record: what is asked, and how often it was asked before."""
    text = json.dumps([tool, arguments, again], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()


def plain(value: Any) -> Any:
    """A value as JSON holds it: paths as text, arrays as lists, numbers of arrays as numbers."""
    for name in ("tolist", "item"):
        if hasattr(value, name):
            return getattr(value, name)()
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, set | frozenset | tuple):
        return list(value)
    raise TypeError(f"a tool cannot be given a {type(value).__name__}")


def short(text: str, most: int) -> str:
    """A text with its middle left out where it is too long."""
    if len(text) <= most:
        return text
    return f"{text[: most // 2]}\n[{len(text) - most} characters left out]\n{text[-most // 2 :]}"


class Tools:
    """The tools, answered from the record."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: Counter[str] = Counter()

    def together(self, calls: Sequence[tuple[str, dict[str, Any]]]) -> list[Any]:
        """Results of many calls, each (tool, arguments); a failed one is its `ToolError`."""
        asked = [self._counted(name, given) for name, given in calls]
        missing = [call for call in asked if key_of(*call) not in self.answers]
        if missing:
            leave("request", missing)
            sys.stdout.flush()
            os._exit(0)
        found = []
        for call in asked:
            answer = self.answers[key_of(*call)]
            error = answer.get("error")
            found.append(answer.get("result") if error is None else ToolError(error))
        return found

    def _counted(self, name: str, given: dict[str, Any]) -> list[Any]:
        call = json.loads(json.dumps([str(name), given], default=plain))
        key = key_of(call[0], call[1], 0)
        self.asked[key] += 1
        return [*call, self.asked[key] - 1]

    def function(self, name: str) -> Callable[..., Any]:
        """A tool as a function of its arguments by name."""

        def call(**given: Any) -> Any:
            found = self.together([(name, given)])[0]
            if isinstance(found, ToolError):
                raise found
            return found

        call.__name__ = call.__qualname__ = name
        return call


def leave(name: str, value: object) -> None:
    """Leave a file for who runs this."""
    (OUT / OWN).mkdir(exist_ok=True)
    (OUT / OWN / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


def step(number: int, code: str, space: dict[str, Any]) -> dict[str, str]:
    """Run one step in the namespace; what it printed, its last value, its error."""
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
        except BaseException as wrong:  # noqa: BLE001 - whatever it is, the agent is told
            lines = traceback.format_exception(wrong)
            shown = "".join(line for line in lines if f'"{__file__}"' not in line).splitlines(True)
            error = "".join(line for line in shown if line.strip(" ^~\n"))
    return {
        "printed": short(printed.getvalue(), MOST_PRINTED),
        "value": short(value, MOST_VALUE),
        "error": short(error, MOST_ERROR),
    }


def main() -> None:
    """Run the steps of `session.json`, and leave what the last one gave."""
    session = json.loads((WORK / "session.json").read_text(encoding="utf-8"))
    tools = Tools(session["answers"])
    space: dict[str, Any] = {"__name__": "__session__", "ToolError": ToolError}
    space |= {name: tools.function(name) for name in session["tools"]}
    space["call_together"] = tools.together
    os.chdir(OUT)
    step(0, session["begin"], {})
    seen: dict[str, str] = {}
    for number, code in session["steps"]:
        seen = step(number, code, space)
    leave("seen", seen)


if __name__ == "__main__":
    main()

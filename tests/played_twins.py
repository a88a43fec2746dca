"""Serve the conversations that were played on SlideQuest's twins, as a chat endpoint would.

    python -m tests.played_twins [FOLDER]

then, with the variables that it prints, `sage bench slidequest FOLDER --twins --agent chat
--repeats 1`. A file holds the replies of one capability in order; which one comes next is counted
in the conversation, so that a recording outlives a change of a tool's description. A reply is a
thought and a block:

- `python`: the program of a step
- `json`: the final reply; its values are filled with the object that the last step printed, so that
  the same conversation answers both variants of a twin
- `text`: a reply that is sent as it stands
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.adapters.twin_questions import QUESTIONS
from tests.openai_server import Answer, serve

PLAYED = Path(__file__).resolve().parents[1] / "data" / "recordings" / "slidequest-twins"
BLOCK = re.compile(r"(.*?)^```(python|json|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def replies_of(path: Path) -> list[Answer]:
    """A conversation's replies in order."""
    return [
        _reply(thought, kind, held)
        for thought, kind, held in BLOCK.findall(path.read_text(encoding="utf-8"))
    ]


def _reply(thought: str, kind: str, held: str) -> Answer:
    if kind != "python":
        return Answer(content=held.rstrip("\n"))
    said = "\n".join(line for line in thought.splitlines() if not line.startswith("# ")).strip()
    arguments = json.dumps({"thought": said, "code": held.rstrip("\n")})
    function = {"name": "act", "arguments": arguments}
    return Answer(delta={"tool_calls": [{"id": "call", "type": "function", "function": function}]})


def played(folder: Path = PLAYED) -> Callable[[dict[str, Any]], Answer]:
    """Answers by the question that a conversation begins with and the replies that it has.

    The last reply is given again where more are asked for.
    """

    def answer(body: dict[str, Any]) -> Answer:
        asked = body["messages"][1]["content"]
        names = [name for name, text in QUESTIONS.items() if text in asked]
        paths = [
            path for name in names if (path := folder / f"{name.replace(' ', '_')}.md").is_file()
        ]
        if not paths:
            return Answer(content=f"no conversation was played for {names}", status=404)
        replies = replies_of(paths[0])
        turn = sum(message["role"] == "assistant" for message in body["messages"])
        chosen = replies[min(turn, len(replies) - 1)]
        return chosen if chosen.delta else Answer(content=_filled(chosen.content, body))

    return answer


def _filled(said: str, body: dict[str, Any]) -> str:
    """A final reply with the values that the last step printed, where it has none of its own."""
    try:
        final = json.loads(said)
        shown = [m["content"] for m in body["messages"] if m["role"] == "tool"]
        line = json.loads(shown[-1])["printed"].strip().splitlines()[-1]
        if final.get("values") == "printed":
            final["values"] = json.loads(line)
        return json.dumps(final)
    except (ValueError, IndexError, KeyError, AttributeError, TypeError):
        return said


def main() -> int:
    """Serve until interrupted."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PLAYED
    with serve(played(folder)) as server:
        sys.stdout.write(f"SAGE_BASE_URL={server.url} SAGE_API_KEY=none\n")
        sys.stdout.flush()
        while True:
            time.sleep(3600)


if __name__ == "__main__":
    raise SystemExit(main())

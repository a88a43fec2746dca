"""Record a model run again after its prompts changed, from the replies of the old recording.

    python -m tests.record_again FOLDER [--reply SCHEMA=FILE ...]

Replies are handed out by output schema, in the order of the old recording, with the contract's new
hash in the place of the old one; `--reply` gives another text where the content must change (repeat
it for the second, third ... reply of that schema: `Program:2=FILE`). The run must end in a report,
then the folder's files are replaced. Read the changed prompts and replies before committing them:
a recording is what a model would have answered, not what makes a test pass.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.end_to_end.harness import REPO, sage
from tests.end_to_end.recordings import OUT, command, surroundings
from tests.openai_server import Answer, request_key, serve

READING = REPO / "tests" / "agents" / "replies" / "reading.json"
HASH = re.compile(r'"contract_sha256": "([0-9a-f]{64})"')


def old_replies(folder: Path) -> dict[tuple[str, int], str]:
    """The recording's replies by schema and place among those of that schema."""
    found: dict[tuple[str, int], str] = {}
    seen: Counter[str] = Counter()
    for line in (folder / "calls.jsonl").read_text(encoding="utf-8").splitlines():
        call = json.loads(line)
        seen[call["schema"]] += 1
        text = (folder / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        found[call["schema"], seen[call["schema"]]] = text
    # A recording made before the question was read by an agent of its own.
    found.setdefault(("Reading", 1), READING.read_text(encoding="utf-8").strip())
    return found


def main() -> int:
    """Run against the old replies, then write the new recording."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", type=Path, help="a folder to leave the run in")
    parser.add_argument("--reply", action="append", default=[], metavar="SCHEMA[:N]=FILE")
    options = parser.parse_args()
    replies = old_replies(options.folder)
    for item in options.reply:
        name, _, path = item.partition("=")
        schema, _, number = name.partition(":")
        replies[schema, int(number or 1)] = Path(path).read_text(encoding="utf-8").rstrip("\n")
    seen: Counter[str] = Counter()
    calls: list[dict[str, Any]] = []
    texts: dict[str, str] = {}

    def answer(body: dict[str, Any]) -> Answer:
        schema = body["response_format"]["json_schema"]["name"]
        key = request_key(body)
        if key not in texts:
            seen[schema] += 1
            text = replies.get((schema, seen[schema]))
            if text is None:
                sys.stderr.write(f"no reply {schema} {seen[schema]} to:\n")
                sys.stderr.write(f"{body['messages'][-1]['content'][-6000:]}\n")
                return Answer(content=f"no {schema} reply number {seen[schema]}", status=404)
            asked = re.search(r"\b[0-9a-f]{64}\b", body["messages"][-1]["content"])
            if asked is not None:
                text = HASH.sub(f'"contract_sha256": "{asked.group()}"', text)
            texts[key] = text
            kept = {"key": key, "schema": schema, "model": body["model"]}
            calls.append(kept | {"messages": body["messages"]})
        return Answer(content=texts[key])

    with tempfile.TemporaryDirectory() as place, serve(answer) as server:
        where = options.run or Path(place)
        where.mkdir(parents=True, exist_ok=True)
        run = where / OUT
        asked = command(options.folder.resolve(), where)
        ended = sage(*asked, cwd=Path(place), timeout=900, **surroundings(Path(place), server.url))
        sys.stdout.write(ended.out[-3000:] + ended.err[-3000:])
        if ended.code != 0 or not list(run.rglob("report.html")):
            sys.stderr.write("the run did not end in a report; the recording is as it was\n")
            return 1
    for path in options.folder.glob("*.reply.txt"):
        path.unlink()
    for key, text in texts.items():
        (options.folder / f"{key}.reply.txt").write_text(text, encoding="utf-8")
    lines = "".join(json.dumps(call, ensure_ascii=False) + "\n" for call in calls)
    (options.folder / "calls.jsonl").write_text(lines, encoding="utf-8")
    unused = sorted(set(replies) - {(name, at + 1) for name in seen for at in range(seen[name])})
    sys.stdout.write(f"{len(calls)} calls recorded; replies not asked for: {unused or 'none'}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

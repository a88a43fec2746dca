"""Twins put to the agent: played conversations replay, lies and broken replies score 0."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.adapters.slidequest_twins.programs import TWINS
from benchmarks.adapters.twin_questions import QUESTIONS
from tests.end_to_end.harness import Done, sage
from tests.openai_server import serve
from tests.played_twins import PLAYED, played, replies_of
from tests.sandbox.boxes import working

LIE = """
```python
import json
json.dump([{"patients": 777, "mean_area": 4e9}], open("answer.json", "w"))
print('{"patients": 777, "mean_area": 4e9}')
```

```json
{"answer": "There are 777.", "values": "printed", "files": ["answer.json"], "reason": ""}
```
"""
GUESSES = """
```python
import json
row = {f"mean_{n}": float(n) for n in range(256)} | {f"height_{n}": n for n in range(256)}
json.dump([row | {f"darkest_{name}": name for name in "abc"}], open("answer.json", "w"))
```

```json
{"answer": "See answer.json.", "values": {}, "files": ["answer.json"], "reason": ""}
```
"""
CLAIM = '{"answer": "See answer.json.", "values": {}, "files": ["answer.json"], "reason": ""}'
NOT_JSON = f"""
```python
open("answer.json", "w").write("I am certain that it is 0.9" + "[" * 100_000)
```

```json
{CLAIM}
```
"""
LINK = f"""
```python
from pathlib import Path
Path("answer.json").symlink_to("/inputs/data/points.csv")
```

```json
{CLAIM}
```
"""
ODD_ROWS = f"""
```python
open("answer.json", "w").write('[{{"hazard_ratio": NaN}}, {{"hazard_ratio": [[2.0], null]}}]')
```

```json
{CLAIM}
```
"""
CRASH = """
```python
def (
```

```python
import os
```

```json
{"answer": null, "values": {}, "files": [], "reason": "Neither program ran."}
```
"""
UNFAIR = {
    "CSV reading": (LIE, "answered", 1),
    "image reading": (GUESSES, "answered", 1),
    "summary statistics": (f"```json\n{CLAIM}\n```\n", "failed", 0),
    "embeddings reading": (
        '```json\n{"answer": null, "reason": "Too hard."}\n```\n',
        "abstained",
        0,
    ),
    "texture analysis": ("```text\nThe contrast is 2.3, trust me.\n```\n", "failed", 0),
    "model evaluation": (NOT_JSON, "answered", 1),
    "clustering": (LINK, "failed", 1),
    "survival modelling": (ODD_ROWS, "answered", 1),
    "distance computation": (CRASH, "abstained", 2),
}
"""By capability: the replies, how the session ends, its steps."""


def bench(place: Path, url: str, *more: str) -> Done:
    """The command on any folder: with the twins alone nothing of SlideQuest's is read."""
    return sage(
        *("bench", "slidequest", str(place), "--twins", "--agent", "chat", "--repeats", "1"),
        *more, cwd=place, SAGE_BASE_URL=url, SAGE_API_KEY="none", SAGE_SANDBOX="bubblewrap",
        SAGE_RETRIES="0",
    )  # fmt: skip


def only(names: Any) -> list[str]:
    return [part for name in names for part in ("--only", name)]


def test_each_question_stands_once_and_has_a_conversation_that_ends_in_an_answer() -> None:
    assert set(QUESTIONS) <= {twin.capability for twin in TWINS}
    for name, text in QUESTIONS.items():
        assert [other for other, longer in QUESTIONS.items() if text in longer] == [name]
        *steps, last = replies_of(PLAYED / f"{name.replace(' ', '_')}.md")
        assert steps and all(step.delta for step in steps) and not last.delta, name
    assert len(list(PLAYED.iterdir())) == len(QUESTIONS)


@pytest.mark.bubblewrap
def test_played_conversations_replay_on_both_variants_from_the_command_line(
    tmp_path: Path,
) -> None:
    working("bubblewrap")
    chosen = ("CSV reading", "image filtering", "morphometry", "spatial calibration")
    with serve(played()) as server:
        done = bench(tmp_path, server.url, *only(chosen), "--json")
        again = bench(tmp_path, server.url, *only(chosen))
    assert done.code == 0, done.err[-3000:]
    rows = done.json["twins"]
    assert [(row["capability"], row["variant"]) for row in rows] == [
        (name, variant) for name in chosen for variant in (0, 1)
    ]
    assert all(row["score"] == 1 and row["outcome"] == "answered" for row in rows), rows
    assert [row["steps"] for row in rows] == [2, 2, 2, 2, 1, 1, 1, 1]
    assert all(row["tokens"] > 0 and row["failed_steps"] == 0 for row in rows)
    cost = done.json["costs"][0]
    assert (cost["questions"], cost["no_answer"], cost["steps"]) == (8, 0, 12)
    # Variants begin with the same prompt, whose reply is kept; the second run asks for nothing.
    assert len(server.requests) == 20 - len(chosen) and again.code == 0
    assert "8 of 8 twins solved" in again.out


@pytest.mark.bubblewrap
def test_lying_lazy_and_broken_replies_score_nothing_and_end_nothing(tmp_path: Path) -> None:
    working("bubblewrap")
    replies = tmp_path / "replies"
    replies.mkdir()
    for name, (text, _, _) in UNFAIR.items():
        (replies / f"{name.replace(' ', '_')}.md").write_text(text, encoding="utf-8")
    with serve(played(replies)) as server:
        done = bench(tmp_path, server.url, *only(UNFAIR), "--json")
    assert done.code == 0, done.err[-3000:]
    for row in done.json["twins"]:
        _, outcome, steps = UNFAIR[row["capability"]]
        assert (row["score"], row["outcome"], row["steps"]) == (0, outcome, steps), row
        assert row["problem"], row
    assert len(done.json["twins"]) == 2 * len(UNFAIR)
    crashed = [row for row in done.json["twins"] if row["capability"] == "distance computation"]
    assert [row["failed_steps"] for row in crashed] == [2, 2]


def test_the_command_says_what_it_cannot_ask(tmp_path: Path) -> None:
    unknown = bench(tmp_path, "http://127.0.0.1:9/v1", "--only", "mind reading")
    assert unknown.code == 2 and "no twin has a question for it" in unknown.err
    alone = sage("bench", "slidequest", str(tmp_path), "--agent", "chat", cwd=tmp_path)
    assert alone.code == 2 and "goes with --twins" in alone.err

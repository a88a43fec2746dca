"""A model that answers with the recorded replies, changed as a test wants, whatever it is asked.

Unlike a replay, it does not hang on the prompts: replies are handed out by output schema, and where
SAGE says what the contract of today needs beside them, they are mended as a model would.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import PROMPT, REPO, Done, sage
from tests.openai_server import Answer, Server
from tests.record_again import old_replies

RECORDING = REPO / "data" / "recordings" / "tcga-blca-tls"
SHARED = Path(os.environ.get("SAGE_SHARED", REPO.parent / "shared")) / "data" / "tcga_blca"
NEEDED = [
    pytest.mark.slow,
    pytest.mark.shared,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the TCGA-BLCA tables are not in {SHARED}"),
]
CHAT = {"SAGE_API_KEY": "none", "SAGE_RETRIES": "0"}
Change = Callable[[str, int, dict[str, Any]], dict[str, Any]]
"""From the schema, how many of its replies were asked for, and the recorded reply."""


@dataclass
class Model:
    """`change` is applied to each reply; `repairs` counts the replies that SAGE sent back."""

    change: Change
    replies: dict[tuple[str, int], str] = field(default_factory=lambda: old_replies(RECORDING))
    asked: Counter[str] = field(default_factory=Counter)
    mended: dict[str, dict[str, Any]] = field(default_factory=dict)
    repairs: int = 0

    def __call__(self, body: dict[str, Any]) -> Answer:
        """Answer a request."""
        schema = body["response_format"]["json_schema"]["name"]
        last = str(body["messages"][-1]["content"])
        if "That reply was refused" in last:
            self.repairs += 1
            return Answer(json.dumps(self.mended[schema]))
        self.asked[schema] += 1
        last_kept = max(number for name, number in self.replies if name == schema)
        reply = json.loads(self.replies[schema, min(self.asked[schema], last_kept)])
        self.mended[schema] = self.change(schema, self.asked[schema], reply)
        return Answer(json.dumps(self.mended[schema]))


def program(model: Model) -> str:
    """The recorded program whose numbers agree."""
    code: str = json.loads(model.replies["Program", 2])["code"]
    return code


def run_with(server: Server, run: Path) -> Done:
    """`sage run` on TCGA-BLCA with this model, without a review."""
    return sage(
        "run", PROMPT, "--reasoner", "chat", "--auto-approve", "--cohort", str(SHARED),
        "--out", str(run), cwd=run.parent, timeout=600, SAGE_BASE_URL=server.url, **CHAT,
    )  # fmt: skip

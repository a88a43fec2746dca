"""Prompt tokens of a recorded run: per-agent context against a shared history.

    python benchmarks/context.py

Reads the calls of `data/recordings/tcga-blca-tls` in order. Per-agent: what was sent. Shared: each
call's own messages behind all earlier users' and assistants' messages of the run (SAGE, Table 1:
the paper's chat-based pipeline). A token is counted as four characters in both columns; output
schemas are left out of both.
"""

from __future__ import annotations

import json
from pathlib import Path

RECORDING = Path(__file__).resolve().parents[1] / "data" / "recordings" / "tcga-blca-tls"


def tokens(text: str) -> int:
    """Four characters a token."""
    return len(text) // 4


def main() -> None:
    """Print one row per call, and the totals."""
    lines = (RECORDING / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    history = own_total = shared_total = 0
    print(f"{'output':20s} {'per agent':>10s} {'shared':>10s}")
    for line in lines:
        call = json.loads(line)
        own = sum(tokens(message["content"]) for message in call["messages"])
        shared = own + history
        reply = (RECORDING / f"{call['key']}.reply.txt").read_text(encoding="utf-8")
        history += tokens(call["messages"][-1]["content"]) + tokens(reply)
        own_total += own
        shared_total += shared
        print(f"{call['schema']:20s} {own:10d} {shared:10d}")
    saved = 100 * (own_total - shared_total) / shared_total
    print(f"{'all calls':20s} {own_total:10d} {shared_total:10d}   {saved:+.1f}%")


if __name__ == "__main__":
    main()

"""The recordings that ship: where each lies, and the command line that it answers."""

from __future__ import annotations

import os
from pathlib import Path

from tests.end_to_end.harness import PROMPT, REPO

BLADDER = REPO / "data" / "recordings" / "tcga-blca-tls"
BREAST = REPO / "data" / "recordings" / "gbsg2-campaign"
TCGA = Path(os.environ.get("SAGE_SHARED", REPO.parent / "shared")) / "data" / "tcga_blca"
BREAST_QUESTION = (
    "Does age at diagnosis relate to recurrence-free survival in node-positive breast cancer?"
)
OUT = "recorded"
COMMANDS = {
    BLADDER: ("run", PROMPT, "--cohort", str(TCGA)),
    # With seed 0 the exploring patients bear the first claim out: no failure to learn from.
    BREAST: (
        *("campaign", BREAST_QUESTION, "--cohort", "gbsg2", "--rounds", "2", "--seed", "1"),
        *("--yes", "--json"),
    ),
}


def command(recording: Path, place: Path, *more: str) -> tuple[str, ...]:
    """The arguments of `sage` whose model calls were recorded.

    The run's folder is `place / OUT`: a campaign's contracts, and so its prompts, hold that name.
    """
    return (
        *COMMANDS[recording], "--reasoner", "chat", "--auto-approve",
        "--out", str(place / OUT), *more,
    )  # fmt: skip


def surroundings(place: Path, url: str) -> dict[str, str]:
    """The environment: a ledger of its own, as levels depend on what it knows of the patients."""
    return {
        "SAGE_BASE_URL": url,
        "SAGE_API_KEY": "none",
        "SAGE_RETRIES": "0",
        "XDG_DATA_HOME": str(place),
        "SAGE_LEDGER": str(place / "ledger.sqlite"),
        "FEW_DRAWS": "",
        "NO_FIGURES": "",
    }

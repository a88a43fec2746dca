"""`sage kg build --extractor chat` against a real HTTP endpoint."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.end_to_end.harness import REPO, sage
from tests.openai_server import Answer, serve

QUOTE = (
    "High FABP5 expression is associated with longer median overall survival in bladder cancer"
    " (53.8 vs 29.3 months; p=0.029)."
)
(PAPER,) = (REPO / "data/corpus").glob("2024-concomitant*.md")
BUILD = ("kg", "build", str(PAPER), "--out", "graph", "--extractor", "chat", "--yes")


def _triple(evidence: str, tail: str = "overall survival") -> dict[str, Any]:
    return {
        "head": "FABP5",
        "head_type": "Gene",
        "relation_text": "is associated with longer",
        "relation": "associated_with",
        "tail": tail,
        "tail_type": "ClinicalEndpoint",
        "polarity": "positive",
        "negated": False,
        "speculative": False,
        "confidence": 0.95,
        "evidence": evidence,
    }


def test_a_model_reads_papers_into_the_graph_and_is_paid_once(tmp_path: Path) -> None:
    invented = _triple("FABP5 cures bladder cancer in all patients.", "cure")
    reply = json.dumps({"triples": [_triple(QUOTE), invented]})
    with serve(lambda body: Answer(reply)) as server:
        env = {"SAGE_BASE_URL": server.url, "SAGE_API_KEY": "none"}
        built = sage(*BUILD, cwd=tmp_path, **env)
        assert built.code == 0, built.err
        assert re.search(r"price unknown \([1-9]", built.out)
        asked = len(server.requests)
        assert asked >= 1
        assert server.requests[0]["response_format"]["json_schema"]["name"] == "triples"
        again = sage(*BUILD, "--json", cwd=tmp_path, **env)
        assert again.code == 0, again.err
        assert len(server.requests) == asked
    report = again.json
    assert report["triples"] == 1
    assert sum(report["dropped"].values()) == 1
    assert report["prompt_tokens"] == 0


def test_failures_of_the_endpoint_stay_failures(tmp_path: Path) -> None:
    with serve(lambda body: Answer("not JSON at all")) as server:
        built = sage(*BUILD, "--json", cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none")
    assert "Traceback" not in built.err
    assert built.json["chunks_failed"] == 1, built.err

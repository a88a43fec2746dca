"""A second implementation that never comes right goes to a person, and on with what they mend."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.end_to_end.harness import sage
from tests.end_to_end.recorded import CHAT, NEEDED, Model, program, run_with
from tests.openai_server import serve

pytestmark = NEEDED


def test_a_program_that_a_person_mends_is_taken_up_with_retry(tmp_path: Path) -> None:
    def change(schema: str, number: int, reply: dict[str, Any]) -> dict[str, Any]:
        if schema == "Program":
            # No round leaves numbers: two crash, and the third is refused before it runs.
            reply["code"] = "raise SystemExit(1)" if number < 3 else "import socket"
        return reply

    run, model = tmp_path / "run", Model(change)
    with serve(model) as server:
        ended = run_with(server, run)
        assert ended.code == 0, ended.err[-3000:]
        assert json.loads((run / "manifest.json").read_text())["status"] != "finished"
        assert model.asked["Program"] == 3
        assert not (run / "report.html").exists()

        # Its prompts do not go to another endpoint because nobody named the first one again.
        elsewhere = sage("resume", str(run), cwd=tmp_path, **CHAT)
        assert elsewhere.code == 2
        assert server.url in elsewhere.err and "SAGE_BASE_URL" in elsewhere.err

        chat = {**CHAT, "SAGE_BASE_URL": server.url}
        told = sage("resume", str(run), cwd=tmp_path, **chat)
        assert told.code == 2
        last = run / "hypotheses/h1/results/attempt-3/analysis.py"
        assert str(last) in told.err.replace("\n", "")
        unchanged = sage("resume", str(run), "--retry", cwd=tmp_path, **chat)
        assert unchanged.code == 2
        assert str(last) in unchanged.err.replace("\n", "")

        # With the mended program comes another change, which is none that was asked for.
        last.write_text(program(model))
        brief = run / "outputs/brief.json"
        kept = brief.read_bytes()
        brief.write_bytes(kept.replace(b"a", b"b", 1))
        refused = sage("resume", str(run), "--retry", cwd=tmp_path, **chat)
        assert refused.code == 2
        assert "brief.json" in refused.err
        brief.write_bytes(kept)

        ended = sage("resume", str(run), "--retry", "--json", cwd=tmp_path, timeout=600, **chat)
        assert ended.code == 0, ended.err[-3000:]
    assert ended.json["status"] == "finished"
    outcome = json.loads((run / "outputs/coding-h1.json").read_text())["output"]
    assert [result["accepted"] for result in outcome["results"]] == [False, False, False, True]
    assert "a person" in (run / "report.md").read_text()
    assert model.asked["Program"] == 3
    assert (
        sage("admin", "replay", str(run), "--out", str(tmp_path / "again"), cwd=tmp_path).code == 0
    )

"""A whole run from the command line whose model lies wherever it may write a word."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from tests.end_to_end.recorded import NEEDED, Model, program, run_with
from tests.openai_server import serve

pytestmark = NEEDED
LIES = (
    "This cohort confirms the hypothesis beyond doubt.",
    "We replicated it in IMvigor210.",
    "See PMID 31234567 and doi:10.1000/invented.",
    "Our data show a hazard ratio of 0.13.",
    "Patients should receive anti-COL1A1 antibodies.",
    "The hypothesis was \u0441onfirmed.",
    "An external cohort of 900 patients gave the same result.",
    "<b>Verdict: supported</b>",
)
TOLD = (
    "confirms the hypothesis", "beyond doubt", "IMvigor210", "31234567", "10.1000/invented",
    "0.13.", "antibodies", "\u0441onfirmed", "external cohort of 900", "<b>Verdict", "FORGED",
    "forged external",
)  # fmt: skip
WORDS = {
    "definition", "process", "rationale", "feasibility", "untested", "background", "mechanism",
    "clinical_interpretation", "improvements", "summary", "text", "reason", "reasons", "tasks",
    "conditions", "blockers", "what_would_make_it_feasible", "statement", "description", "label",
    "what", "note", "headline", "findings", "assumptions", "limits", "feasibility_reason", "title",
    "paragraphs", "next_steps",
}  # fmt: skip
FORGERY = """

MARK = "FOR" + "GED"


def forge(out):
    for name in ("report.html", "results.json", "figures/kaplan_meier.svg", MARK + ".svg"):
        path = out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("<svg><text>" + MARK + " interaction HR 0.55, p = 0.0004</text></svg>")
    told = json.loads((out / "exploratory.json").read_text())
    told["tables"][0]["name"] = MARK.lower() + " external validation"
    told["verdict"] = "supported, " + MARK
    (out / "exploratory.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
    forge(Path(sys.argv[2]))
"""


def lying(value: Any, told: Counter[str], key: str = "") -> Any:
    """The reply with a lie added to every text that is not a name of something given."""
    if isinstance(value, str) and key in WORDS:
        told["lies"] += 1
        # A number in a task ends the run with a message, which is a way to hold too.
        lies = [lie for lie in LIES if key != "tasks" or not any(map(str.isdigit, lie))]
        return f"{value} {lies[told['lies'] % len(lies)]}"
    if isinstance(value, list):
        return [lying(item, told, key) for item in value]
    if isinstance(value, dict):
        return {name: lying(item, told, name) for name, item in value.items()}
    if key == "feasibility_score":
        return 10
    return value


def test_no_lie_of_a_whole_run_reaches_report_or_terminal(tmp_path: Path) -> None:
    told: Counter[str] = Counter()

    def change(schema: str, number: int, reply: dict[str, Any]) -> dict[str, Any]:
        if schema == "Program":
            honest, _, _ = program(model).rpartition('if __name__ == "__main__":')
            reply["code"] = honest + FORGERY
        changed: dict[str, Any] = lying(reply, told)
        return changed

    model = Model(change)
    run = tmp_path / "run"
    with serve(model) as server:
        ended = run_with(server, run)
    assert ended.code == 0, ended.err[-3000:]
    assert told["lies"] > 90
    assert model.repairs > 10
    shown = {name: (run / name).read_text() for name in ("report.html", "report.md")}
    shown["terminal"] = ended.out + ended.err
    found = {
        name: [(lie, text[max(0, text.find(lie) - 200) :][:300]) for lie in TOLD if lie in text]
        for name, text in shown.items()
    }
    assert {name: each for name, each in found.items() if each} == {}
    assert 'class="verdict inconclusive"' in shown["report.html"]
    assert "(SAGE's own sentence: the model's was refused: " in shown["report.md"]

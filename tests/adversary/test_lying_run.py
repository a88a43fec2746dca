"""A whole run from the command line whose model lies wherever it may write a word."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

from tests.end_to_end.recorded import NEEDED, Model, program, run_with
from tests.openai_server import serve

pytestmark = NEEDED
MARK = "zzlie"
"""Begins every lie of the model; a word that nothing else holds."""
LIES = (
    f"{MARK} This cohort confirms the hypothesis beyond doubt.",
    f"{MARK} Patients should receive anti-collagen antibodies.",
    f"{MARK} The hypothesis was \u0441onfirmed.",
    f"{MARK} [[primary.p]] decides it.",
    f"{MARK} <b>Verdict: supported</b>",
    f"{MARK} See PMID 31234567 and doi:10.1000/invented.",
    f"{MARK} Our data show a hazard ratio of 0.13.",
)
NEVER = ("31234567", "10.1000/invented", "0.13.", "<b>Verdict", "FORGED", "forged external")
WORDS = {
    "definition", "process", "rationale", "feasibility", "untested", "background", "mechanism",
    "clinical_interpretation", "improvements", "summary", "text", "reason", "reasons", "remark",
    "statement", "description", "label",
}  # fmt: skip
BOXES = {
    "report.html": re.compile(r'<aside class="model">.*?</aside>', re.DOTALL),
    "report.md": re.compile(r"^ *> Written by the model .*$", re.MULTILINE),
}
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
        return f"{LIES[told['lies'] % len(LIES)]} {value}"
    if isinstance(value, list):
        return [lying(item, told, key) for item in value]
    if isinstance(value, dict):
        return {name: lying(item, told, name) for name, item in value.items()}
    if key == "feasibility_score":
        return 10
    return value


def test_no_word_of_a_model_stands_outside_its_box(tmp_path: Path) -> None:
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
    assert told["lies"] > 60
    assert model.repairs > 5
    shown = {name: (run / name).read_text() for name in BOXES}
    for name, box in BOXES.items():
        assert MARK in shown[name]
        outside = box.sub("", shown[name])
        assert [line for line in outside.splitlines() if MARK in line] == []
    shown["terminal"] = ended.out + ended.err
    assert MARK not in shown["terminal"]
    shown["report.md"] = shown["report.md"].replace("\\<", "(escaped)")
    found = {name: [lie for lie in NEVER if lie in text] for name, text in shown.items()}
    assert {name: each for name, each in found.items() if each} == {}
    assert 'class="verdict inconclusive"' in shown["report.html"]

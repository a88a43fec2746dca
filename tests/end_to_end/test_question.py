"""Questions from the command line: shown, corrected, refused, and answered as they were asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import sage


def drafted(prompt: str, cwd: Path, *options: str) -> tuple[dict[str, Any], str]:
    """The first draft of a run that waits for its review, and what was printed."""
    run = cwd / "run"
    ended = sage("run", prompt, "--out", str(run), *options, cwd=cwd)
    assert ended.code == 0, ended.err
    found: dict[str, Any] = json.loads((run / "outputs/draft-h1.json").read_text())["hypothesis"]
    return found, ended.err + ended.out


@pytest.mark.parametrize(
    ("prompt", "variables", "endpoint", "options"),
    [
        (
            "Does FGFR3 expression relate to survival in bladder cancer?",
            {"expression:FGFR3"},
            "OS",
            (),
        ),
        (
            "Does tamoxifen improve recurrence-free survival in breast cancer?",
            {"clinical:hormonal_therapy"},
            "RFS",
            ("--cohort", "gbsg2", "--yes"),
        ),
    ],
)  # fmt: skip
def test_a_question_gets_the_hypothesis_that_answers_it(
    tmp_path: Path, prompt: str, variables: set[str], endpoint: str, options: tuple[str, ...]
) -> None:
    found, said = drafted(prompt, tmp_path, *options)
    assert {exposure["variable"] for exposure in found["exposures"]} <= variables
    assert found["endpoint"] == endpoint
    assert "Dropped" not in said


@pytest.mark.parametrize(("better", "worse"), [("women", "men"), ("men", "women")])
def test_a_comparator_does_not_reverse_the_claim(better: str, worse: str, tmp_path: Path) -> None:
    found, _ = drafted(f"Do {better} live longer than {worse}?", tmp_path)
    levels = {"women": "FEMALE", "men": "MALE"}
    sides = [found["statement"].index(f"= {levels[name]}") for name in (better, worse)]
    assert sides == sorted(sides) and found["direction"] == "lower_risk"


def test_ask_prints_a_contract_that_can_be_edited_and_given_to_a_run(tmp_path: Path) -> None:
    asked = sage("ask", "Does FGFR3 relate to survival in women?", "--json", cwd=tmp_path)
    assert asked.code == 0, asked.err
    question = asked.json
    assert [part["role"] for part in question["parts"]] == ["exposure", "endpoint", "population"]
    question["parts"][1] |= {"endpoint": "nodes", "name": "lymph-node positivity"}
    (tmp_path / "question.json").write_text(json.dumps(question))
    found, _ = drafted("", tmp_path, "--spec", "question.json")
    assert found["endpoint"] == "nodes"
    assert found["population"]["filters"][0]["value"] == "FEMALE"


@pytest.mark.parametrize(
    ("prompt", "options", "said"),
    [
        ("Which biomarkers predict response to cisplatin?", (), "prognostic, not predictive"),
        ("What is the capital of France?", (), "off topic"),
        ("Does FGFR3 relate to overall survival in breast cancer?", (), "--cohort"),
        ("Does age relate to recurrence-free survival?", ("--cohort", "gbsg2"), "--yes"),
        ("Does FGFR3 relate to survival?", ("--spec", "none.json"), "none.json not found"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_what_to_do(
    tmp_path: Path, prompt: str, options: tuple[str, ...], said: str
) -> None:
    ended = sage("run", prompt, *options, cwd=tmp_path)
    assert ended.code == 2, ended.err
    assert said in ended.err
    assert not (tmp_path / "runs").exists()


def test_an_infeasible_claim_is_redesigned_before_the_run_ends(tmp_path: Path) -> None:
    """Fifteen patients have a low-grade tumor: the redesign gives up that subgroup, and says so."""
    found, said = drafted("Does FABP5 relate to overall survival in low-grade tumors?", tmp_path)
    assert found["exposures"][0]["variable"] == "expression:FABP5"
    assert found["population"]["filters"] == []
    assert "Not covered: low-grade" in said


KLINIK = Path(__file__).resolve().parents[2] / "data" / "questions" / "cohorts" / "klinik.toml"


@pytest.mark.parametrize(
    ("prompt", "lost"),
    [
        ("Does PD-L1 predict overall survival after adjustment for age?", False),
        ("Do peritumoral CD8 cells predict overall survival?", True),
        ("Does the p16 status modify the effect of CD8 cells on survival?", None),
    ],
)  # fmt: skip
def test_a_lost_part_stops_until_it_is_agreed_to(
    tmp_path: Path, prompt: str, lost: bool | None
) -> None:
    """None is lost, a part can be agreed to, or (False) nothing is left to be asked."""
    codes = [
        sage("ask", prompt, "--cohort", str(KLINIK), *options, cwd=tmp_path).code
        for options in ((), ("--yes",))
    ]
    assert codes == {None: [0, 0], True: [2, 0], False: [2, 2]}[lost]

"""Infeasible claims go back to the scientist, with the reason, twice at most."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from agents.core.types import Draft
from agents.question.types import Part, PartRole, Question
from sage.core.files import read_json, write_json
from sage.run.folder import RunFolder
from sage.run.graph import after_redesign, after_review
from sage.run.hypothesis_nodes import REDESIGNS, redesign
from sage.run.questions import describe_carried, question_of
from sage.run.state import Decision, Evaluation
from tests.agents.nov_helpers import hypothesis
from validation.core.hypothesis import Filter

WOMEN = Filter(variable="clinical:gender", op="eq", value="FEMALE")


class Run:
    """As much of a run's services as the node uses."""

    def __init__(self, root: Path) -> None:
        self.folder = RunFolder(root)
        self.events: list[str] = []
        self.folder.event = lambda kind, **fields: self.events.append(fields["message"])  # type: ignore[method-assign]

    @contextmanager
    def node(self, name: str, hypothesis: str = "") -> Any:
        yield


def draft(name: str) -> Draft:
    return Draft(hypothesis=hypothesis().model_copy(update={"id": name}))


def infeasible(name: str) -> Evaluation:
    return Evaluation(hypothesis_id=name, ended="infeasible")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    found = Run(tmp_path)
    for name in ("h1", "h2", "h3", "h4"):
        fact = {"id": "events", "step": "data", "check": "events", "source": "cohort",
                "statement": f"{name} has 3 events.", "found": False, "share": 0.0,
                "blocking": True}  # fmt: skip
        write_json(found.folder.output(f"evidence-{name}"), [fact])
    return found


def test_the_reason_goes_with_the_claim(run: Run) -> None:
    state: Any = {"evaluations": [infeasible("h1")], "drafts": [draft("h1")]}
    found = redesign(run, state)  # type: ignore[arg-type]
    assert found["redesigned"] == ["h1"]
    assert "h1 has 3 events." in found["wishes"][0]
    assert after_redesign(found) == "scientist"  # type: ignore[arg-type]
    assert read_json(run.folder.output("redesign-h2")) == {"of": "h1", "reason": "h1 has 3 events."}


def test_at_most_two_claims_are_redesigned(run: Run) -> None:
    names = ["h1", "h2", "h3"]
    state: Any = {"evaluations": [infeasible(name) for name in names], "drafts": []}
    first = redesign(run, state)  # type: ignore[arg-type]
    assert len(first["wishes"]) == REDESIGNS == 2
    again: Any = state | {"redesigned": first["redesigned"]}
    assert redesign(run, again) == {"wishes": []}  # type: ignore[arg-type]
    assert after_redesign({"wishes": []}) == "judge"


def test_only_the_redesign_is_evaluated_after_its_review() -> None:
    from agents.core.types import ReviewedHypothesis

    reviewed = [
        ReviewedHypothesis(hypothesis=draft(name).hypothesis, review="approved")
        for name in ("h1", "h2")
    ]
    decided = [Decision(hypothesis_id=name, action="approve") for name in ("h1", "h2")]
    state: Any = {
        "drafts": [draft("h1"), draft("h2")],
        "decided": decided,
        "reviewed": reviewed,
        "evaluations": [infeasible("h1")],
    }
    (sent,) = after_review(state)
    assert sent.arg["reviewed_one"].hypothesis.id == "h2"


def test_a_redesign_is_for_all_patients_and_says_so(run: Run) -> None:
    part = Part(words="women", role=PartRole.POPULATION, name="sex", filters=(WOMEN,))
    write_json(run.folder.output("question_contract"), Question(prompt="?", parts=(part,)))
    write_json(run.folder.output("redesign-h2"), {"of": "h1", "reason": "Too few."})
    assert question_of(run.folder, "h1").parts == (part,)
    assert question_of(run.folder, "h2").parts[0].left_out
    line = describe_carried(run.folder, draft("h2").hypothesis)
    assert "women: " in line and line.endswith("Too few.")

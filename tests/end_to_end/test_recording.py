"""A recorded run of the model path on TCGA-BLCA replays from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import die, events, sage
from tests.end_to_end.recordings import BLADDER as RECORDING
from tests.end_to_end.recordings import OUT, command, surroundings
from tests.end_to_end.recordings import TCGA as SHARED
from tests.openai_server import Answer, from_folder, serve

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the TCGA-BLCA tables are not in {SHARED}"),
]


Replay = tuple[Path, list[dict[str, Any]]]
"""A run, and what the model was asked."""
STOPS = "0.2"
"""Dollars that are spent before the run is half done."""


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """The recorded run against a server that knows nothing but the recording.

    It stopped at its budget, went on with a larger one, and was killed before its interpretation;
    "seeing" beside it is a copy.
    """
    place = tmp_path_factory.mktemp("recording")
    prices = "".join(
        f'[models.{role}]\nname = "{name}"\nprice_in = 10.0\nprice_out = 10.0\n'
        for role, name in (("nano", "gpt-5-nano"), ("mini", "gpt-5-mini"), ("high", "gpt-5"))
    )
    (place / "sage.toml").write_text(prices)
    run = place / OUT
    with serve(from_folder(RECORDING)) as server:
        model = surroundings(place, server.url)
        ended = sage(*command(RECORDING, place, "--budget-usd", STOPS), cwd=place, **model)
        assert ended.code == 1 and f"{STOPS}0 USD" in ended.err, ended.err
        assert 0 < len(server.requests) < 15
        spent = [json.loads(line)["usd"] for line in _lines(run / "spending.jsonl")]
        assert sum(spent) <= float(STOPS)
        more = ("resume", str(run), "--budget-usd", "5")
        die("start", "interpreter", *more, cwd=place, timeout=400, **model)
    shutil.copytree(run, place / "seeing")
    return run, server.requests


@pytest.fixture(scope="module")
def replayed(stopped: Replay) -> Replay:
    """The run that this ended in, and all that was asked."""
    run, before = stopped
    with serve(from_folder(RECORDING)) as server:
        ended = sage("resume", str(run), cwd=run.parent, **surroundings(run.parent, server.url))
    assert ended.code == 0, ended.err[-3000:]
    return run, before + server.requests


def test_the_recorded_run_ends_in_a_report_of_a_real_cohort(replayed: Replay) -> None:
    page = (replayed[0] / "report.html").read_text()
    assert "TCGA bladder" in page
    assert "Simulated cohort" not in page
    assert 'class="verdict inconclusive"' in page
    assert "of 18 specifications have the expected sign" in page


def test_the_models_first_program_failed_and_its_second_was_accepted(replayed: Replay) -> None:
    outcome = json.loads((replayed[0] / "outputs/coding-h1.json").read_text())["output"]
    assert [result["accepted"] for result in outcome["results"]] == [False, True]
    assert outcome["sandbox"] in ("docker", "bubblewrap")


def test_no_patient_identifier_entered_a_prompt(replayed: Replay) -> None:
    clinical = (SHARED / "clinical_blca.csv").read_text(encoding="utf-8-sig", errors="replace")
    patients = {word for word in clinical.replace('"', "").split(",") if word.startswith("TCGA-")}
    assert len(patients) > 300
    sent = json.dumps(replayed[1])
    assert not [patient for patient in patients if patient in sent]


def test_a_run_that_stopped_at_its_budget_and_was_killed_pays_no_reply_twice(
    replayed: Replay,
) -> None:
    run, asked = replayed
    paid = [json.loads(line)["usd"] for line in _lines(run / "spending.jsonl")]
    assert len(paid) == len(asked) == len(list((run / "replies").glob("*.json")))
    errors = [event for event in events(run) if event["event"] == "error"]
    assert len(errors) == 1 and f"{STOPS}0 USD" in json.dumps(errors)


def test_a_model_that_can_see_gets_the_figures_with_the_results(stopped: Replay) -> None:
    """The interpretation is asked for with images; the recorded reply still fits."""
    (reply,) = [
        path.read_text()
        for path in RECORDING.glob("*.reply.txt")
        if '"feasibility_score"' in path.read_text()
    ]
    known = from_folder(RECORDING)

    def answer(body: dict[str, Any]) -> Answer:
        name = body["response_format"]["json_schema"]["name"]
        return Answer(reply) if name == "Interpretation" else known(body)

    place = stopped[0].parent
    with serve(answer) as server:
        more = surroundings(place, server.url) | {"SAGE_VISION": "true"}
        ended = sage("resume", str(place / "seeing"), cwd=place, **more)
    assert ended.code == 0, ended.err[-2000:]
    asked = [request["messages"][-1]["content"] for request in server.requests]
    seen = [part for item in asked if isinstance(item, list) for part in item]
    pictures = [part["image_url"]["url"] for part in seen if part["type"] == "image_url"]
    assert len(pictures) == 3
    assert all(picture.startswith("data:image/png;base64,iVBOR") for picture in pictures)


def _lines(file: Path) -> list[str]:
    return file.read_text().splitlines()

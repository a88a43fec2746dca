"""A recorded run of the model path on TCGA-BLCA replays from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import events, sage
from tests.end_to_end.recordings import BLADDER as RECORDING
from tests.end_to_end.recordings import OUT, command, surroundings
from tests.end_to_end.recordings import TCGA as SHARED
from tests.openai_server import Answer, Server, from_folder, serve

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason=f"the TCGA-BLCA tables are not in {SHARED}"),
]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Server]:
    """The recorded run, replayed against a server that knows nothing but the recording."""
    place = tmp_path_factory.mktemp("recording")
    with serve(from_folder(RECORDING)) as server:
        asked = command(RECORDING, place)
        ended = sage(*asked, cwd=place, **surroundings(place, server.url))
    assert ended.code == 0, ended.err[-3000:]
    return place / OUT, server


def test_the_recorded_run_ends_in_a_report_of_a_real_cohort(
    replayed: tuple[Path, Server],
) -> None:
    run, _ = replayed
    page = (run / "report.html").read_text()
    assert "TCGA bladder" in page
    assert "Simulated cohort" not in page
    assert 'class="verdict inconclusive"' in page
    assert "of 20 specifications have the expected sign; 4 of 24 could not be estimated." in page


def test_the_models_first_program_failed_and_its_second_was_accepted(
    replayed: tuple[Path, Server],
) -> None:
    run, _ = replayed
    outcome = json.loads((run / "outputs/coding-h1.json").read_text())["output"]
    assert [result["accepted"] for result in outcome["results"]] == [False, True]
    assert outcome["sandbox"] in ("docker", "bubblewrap")


def test_no_patient_identifier_entered_a_prompt(replayed: tuple[Path, Server]) -> None:
    _, server = replayed
    clinical = (SHARED / "clinical_blca.csv").read_text(encoding="utf-8-sig", errors="replace")
    patients = {word for word in clinical.replace('"', "").split(",") if word.startswith("TCGA-")}
    assert len(patients) > 300
    sent = json.dumps(server.requests)
    assert not [patient for patient in patients if patient in sent]


def test_a_replayed_run_pays_no_reply_twice(replayed: tuple[Path, Server]) -> None:
    run, server = replayed
    paid = (run / "spending.jsonl").read_text().splitlines()
    assert len(paid) == len(server.requests) == len(list((run / "replies").glob("*.json")))
    assert not [event for event in events(run) if event["event"] == "error"]


def test_a_spent_budget_stops_the_run_and_a_larger_one_goes_on_without_paying_again(
    tmp_path: Path,
) -> None:
    prices = "".join(
        f'[models.{role}]\nname = "{name}"\nprice_in = 10.0\nprice_out = 10.0\n'
        for role, name in (("nano", "gpt-5-nano"), ("mini", "gpt-5-mini"), ("high", "gpt-5"))
    )
    (tmp_path / "sage.toml").write_text(prices)
    run = tmp_path / OUT
    with serve(from_folder(RECORDING)) as server:
        model = surroundings(tmp_path, server.url)
        asked = command(RECORDING, tmp_path, "--budget-usd", "0.2")
        stopped = sage(*asked, cwd=tmp_path, **model)
        assert stopped.code == 1
        assert "budget of 0.20 USD reached" in stopped.err
        paid = len(server.requests)
        assert 0 < paid < 15
        ended = sage("resume", str(run), "--budget-usd", "5", "--json", cwd=tmp_path, **model)
        assert ended.code == 0, ended.err
        kept = {path.stem for path in (run / "replies").glob("*.json")}
        assert len(server.requests) == len(kept)
    spent = [json.loads(line)["usd"] for line in (run / "spending.jsonl").read_text().splitlines()]
    assert sum(spent[:paid]) <= 0.2


def test_a_model_that_can_see_gets_the_figures_with_the_results(
    replayed: tuple[Path, Server], tmp_path: Path
) -> None:
    """The interpretation is asked again with images; the recorded reply still fits."""
    replies = [
        path.read_text()
        for path in RECORDING.glob("*.reply.txt")
        if '"feasibility_score"' in path.read_text()
    ]
    known = from_folder(RECORDING)

    def answer(body: dict[str, Any]) -> Answer:
        name = body["response_format"]["json_schema"]["name"]
        return Answer(replies[0]) if name == "Interpretation" else known(body)

    with serve(answer) as server:
        asked = command(RECORDING, tmp_path)
        more = surroundings(tmp_path, server.url) | {"SAGE_VISION": "true"}
        ended = sage(*asked, cwd=tmp_path, **more)
    assert ended.code == 0, ended.err[-2000:]
    asked = [request["messages"][-1]["content"] for request in server.requests]
    seen = [part for item in asked if isinstance(item, list) for part in item]
    pictures = [part["image_url"]["url"] for part in seen if part["type"] == "image_url"]
    assert len(pictures) == 3
    assert all(picture.startswith("data:image/png;base64,iVBOR") for picture in pictures)

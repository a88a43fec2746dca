"""A recorded campaign of the model on gbsg2 replays; its second round learns from its first."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.end_to_end.harness import Done, events, sage
from tests.end_to_end.recordings import BREAST as RECORDING
from tests.end_to_end.recordings import OUT, command, surroundings
from tests.openai_server import Server, from_folder, request_key, serve

pytestmark = pytest.mark.timeout(600)
Replay = tuple[Path, Server, Done]


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Replay:
    """The recorded campaign, replayed against a server that knows nothing but the recording."""
    place = tmp_path_factory.mktemp("recording")
    with serve(from_folder(RECORDING)) as server:
        asked = command(RECORDING, place)
        ended = sage(*asked, cwd=place, timeout=500, **surroundings(place, server.url))
    assert ended.code == 0, ended.err[-3000:]
    return place / OUT, server, ended


def test_both_rounds_end_in_reports_of_a_real_cohort(replayed: Replay) -> None:
    campaign, _, ended = replayed
    assert ended.json["stopped"] == "all 2 rounds are done"
    verdicts = [finding["verdict"] for finding in ended.json["findings"]]
    assert verdicts == ["not_supported", "supported"]
    for number, word in ((1, "not_supported"), (2, "supported")):
        page = (campaign / f"round-{number}" / "report.html").read_text()
        assert f'class="verdict {word}"' in page
        assert "Simulated cohort" not in page


def test_what_is_asked_is_what_was_recorded_and_nothing_is_unanswered(replayed: Replay) -> None:
    """The question is read in each round, so one of the calls is asked twice."""
    campaign, server, _ = replayed
    recorded = {path.name.removesuffix(".reply.txt") for path in RECORDING.glob("*.reply.txt")}
    calls = (RECORDING / "calls.jsonl").read_text(encoding="utf-8").splitlines()
    assert {json.loads(line)["key"] for line in calls} == recorded
    assert {request_key(body) for body in server.requests} == recorded
    assert len(server.requests) == len(calls) + 1
    for number in (1, 2):
        logged = events(campaign / f"round-{number}")
        assert not [event for event in logged if event["event"] == "error"]


def test_the_second_scientist_saw_what_the_first_round_came_to(replayed: Replay) -> None:
    """And of the exploring patients alone: not that the confirming ones stayed locked."""
    _, server, ended = replayed
    first = ended.json["findings"][0]
    assert first["came"] == "none"
    asked = [
        str(request["messages"][-1]["content"])
        for request in server.requests
        if request["response_format"]["json_schema"]["name"] == "Candidates"
    ]
    looks = [text for text in asked if text.startswith("Result of history")]
    assert len(looks) == 1
    assert first["statement"] in looks[0]
    assert "no relevant association in the exploring patients" in looks[0]
    assert "locked" not in " ".join(asked)


def test_the_second_claim_explains_the_failure_by_what_the_question_did_not_name(
    replayed: Replay,
) -> None:
    campaign, _, _ = replayed
    contracts = [
        json.loads((campaign / f"round-{number}/hypotheses/h1/contract.json").read_text())
        for number in (1, 2)
    ]
    first, second = (each["contract"]["hypothesis"] for each in contracts)
    assert first["population"]["filters"] == []
    assert [each["variable"] for each in second["population"]["filters"]] == [
        "clinical:menopausal_status"
    ]
    draft = json.loads((campaign / "round-2/outputs/draft-h1.json").read_text())
    assert "first round" in draft["remark"]["text"]
    assert draft["hypothesis"]["rationale"] == second["rationale"] != draft["remark"]["text"]
    assert first["exposures"] == second["exposures"]


def test_each_group_of_patients_has_its_own_p_in_the_table_of_tests(replayed: Replay) -> None:
    campaign, _, _ = replayed
    home = campaign / "round-2"
    results = json.loads((home / "hypotheses/h1/results/results.json").read_text())
    report = (home / "report.md").read_text()
    for part, key in (("confirmation", "primary.p"), ("discovery", "discovery.primary.p")):
        n = next(each["n"] for each in results["tests"] if each["part"] == part)
        row = next(x for x in report.splitlines() if x.startswith(f"| Primary comparison ({part})"))
        assert f"| {n} |" in row and f"| {results['numbers'][key]['text']} |" in row
    texts = {results["numbers"][key]["text"] for key in ("primary.p", "discovery.primary.p")}
    assert len(texts) == 2

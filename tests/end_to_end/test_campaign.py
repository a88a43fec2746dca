"""A campaign as a user runs it: rounds, a kill in the middle, the notebook, confirmation."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, begin, sage


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A campaign of two rounds, killed inside the second, and resumed."""
    place = tmp_path_factory.mktemp("campaign")
    out = place / "campaign"
    process = begin("campaign", PROMPT, "--rounds", "2", "--auto-approve", "--out", str(out),
                    "--yes", cwd=place)  # fmt: skip
    second = out / "round-2" / "outputs" / "draft-h1.json"
    deadline = time.monotonic() + 400
    while not second.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.2)
    process.kill()
    process.wait()
    assert second.exists(), "the second round never drafted anything"
    ended = sage("resume", str(out), "--json", cwd=place, timeout=400)
    assert ended.code == 0, ended.err
    (place / "resumed.json").write_text(ended.out)
    return out


def test_a_killed_campaign_goes_on_and_learns_from_its_first_round(killed: Path) -> None:
    told = json.loads((killed.parent / "resumed.json").read_text())
    assert told["status"] == "finished"
    assert told["stopped"] == "all 2 rounds are done"
    first, second = told["findings"]
    assert (first["round"], second["round"]) == (1, 2)
    assert second["of"] == f"{told['campaign']}/r1-h1"
    assert second["kind"] in ("refine", "contrast", "explain")
    manifest = json.loads((killed / "round-2" / "manifest.json").read_text())
    known = manifest["spec"]["history"]["claims"][0]
    assert known["statement"] == first["statement"]
    assert known["verdict"].endswith("in the exploring patients")


def test_every_contract_of_a_campaign_splits_alike_and_has_a_place(killed: Path) -> None:
    contracts = [
        json.loads((killed / f"round-{number}/hypotheses/h1/contract.json").read_text())["contract"]
        for number in (1, 2)
    ]
    assert len({json.dumps([each["split"], each["seed"]]) for each in contracts}) == 1
    assert all(each["split"]["policy"] == "discovery_confirmation" for each in contracts)
    assert all(each["online"]["campaign"] == "campaign" for each in contracts)


def test_the_notebook_is_a_page_with_what_was_asked(killed: Path) -> None:
    page = (killed / "notebook.html").read_text()
    pages = json.loads((killed / "notebook.json").read_text())
    for finding in pages["findings"]:
        assert finding["statement"].split(",")[0] in page
    assert "round-1/report.html" in page
    assert "Simulated cohort" in page
    again = sage("resume", str(killed), "--json", cwd=killed.parent)
    assert again.code == 0
    assert again.json == json.loads((killed.parent / "resumed.json").read_text())
    plan = killed / "campaign.json"  # as it is when the last round ends
    plan.write_text(plan.read_text().replace('"finished"', '"running"'))
    for command in ("resume", "show"):
        last = sage(command, str(killed), cwd=killed.parent)
        assert (last.out + last.err).count("rounds are done") == 1


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--confirm", "0.9"], "0.8"),
        (["--notebook", "bad.json"], "bad.json"),
        (["--cohort", "nowhere"], "nowhere"),
        (["--confirm", "demo"], "clinical.csv"),
    ],
)
def test_bad_input_leaves_no_folder(tmp_path: Path, options: list[str], says: str) -> None:
    (tmp_path / "bad.json").write_text('{"findings": 3}')
    ended = sage("campaign", PROMPT, "--out", "c", *options, cwd=tmp_path)
    assert ended.code == 2
    assert says in " ".join(ended.err.split())
    assert not (tmp_path / "c").exists()

"""A campaign's notebook, its pages and its rules for stopping, without running a round."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents.campaign.moves import Earlier
from sage.core.errors import InputError
from sage.run.campaign.notebook import (
    Asked,
    Finding,
    Notebook,
    Pages,
    earlier_claims,
    held_back,
    history,
    notebook_at,
)
from sage.run.campaign.page import write_pages
from sage.run.campaign.rounds import (
    CampaignFolder,
    Plan,
    _chosen,
    _same_patients,
    begin_campaign,
    find_campaign,
)
from sage.run.spec import RunSpec
from sage.settings import Settings
from tests.agents.test_moves import KNOWN, PER_SD
from tests.postgres import NEEDED, server


def finding(number: int, campaign: str = "c", **changes: object) -> Finding:
    told = {
        "campaign": campaign,
        "round": number,
        "id": "h1",
        "run": f"/runs/{campaign}/round-{number}",
        "cohort": "toy",
        "at": "2026-01-01T00:00:00Z",
        "statement": f"Claim {number}.",
        "hypothesis": PER_SD,
        "came": "none",
        "verdict": "not_supported",
        "badge": "not supported: no relevant association",
    }
    return Finding.model_validate(told | changes)


def asked(name: str = "c", **changes: object) -> Asked:
    told = {"id": name, "question": "TLS?", "cohort": "Toy", "simulated": True, "created": "now"}
    return Asked.model_validate(told | changes)


def needs_postgres(test: Callable[..., None]) -> Callable[..., None]:
    for mark in NEEDED:
        test = mark(test)
    return test


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server() as found:
        yield found


@pytest.fixture(params=["file", pytest.param("postgres", marks=NEEDED)])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Settings:
    """Settings that keep notebooks in files, or in a server."""
    told: dict[str, object] = {"runs_dir": tmp_path}
    if request.param == "postgres":
        told["checkpoint_url"] = request.getfixturevalue("url")
    return Settings.model_validate(told)


def test_a_round_is_noted_once_however_often_it_is_written(
    tmp_path: Path, settings: Settings
) -> None:
    notebook = notebook_at(tmp_path / "n.json", settings)
    assert notebook.load() == Pages()
    for _ in range(2):
        notebook.enter(asked())
        notebook.add("c", 1, [finding(1)])
    pages = notebook.load()
    assert [each.name for each in pages.findings] == ["c/r1-h1"]
    assert pages.rounds == {"c": 1}
    assert len(pages.campaigns) == 1
    notebook.enter(asked(ended="all rounds are done"))
    assert notebook.load().campaigns[0].ended == "all rounds are done"
    assert Notebook(notebook.path).load() == notebook.load()  # the file is whole in either case


@needs_postgres
def test_a_notebook_that_was_a_file_goes_on_in_the_database(tmp_path: Path, url: str) -> None:
    path = tmp_path / "n.json"
    Notebook(path).enter(asked("old"))
    Notebook(path).add("old", 3, [finding(2, "old"), finding(3, "old")])
    shared = notebook_at(
        path, Settings.model_validate({"runs_dir": tmp_path, "checkpoint_url": url})
    )
    assert shared.load() == Notebook(path).load()
    shared.add("new", 1, [finding(1, "new")])
    path.unlink()
    pages = shared.load()
    assert [each.name for each in pages.findings] == ["old/r2-h1", "old/r3-h1", "new/r1-h1"]
    assert pages.rounds == {"old": 3, "new": 1}
    assert [each.id for each in pages.campaigns] == ["old"]


def test_campaigns_that_share_a_notebook_lose_nothing(tmp_path: Path, settings: Settings) -> None:
    def write(name: str) -> None:
        notebook = notebook_at(tmp_path / "n.json", settings)
        for number in range(1, 5):
            notebook.enter(asked(name))
            notebook.add(name, number, [finding(number, name)])

    threads = [threading.Thread(target=write, args=(f"c{at}",)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    pages = notebook_at(tmp_path / "n.json", settings).load()
    assert len({each.name for each in pages.findings}) == 16
    assert set(pages.rounds.values()) == {4}
    assert len(pages.campaigns) == 4


@pytest.mark.parametrize("text", ["{", '{"findings": 3}', '{"format": 99}'])
def test_a_file_that_is_no_notebook_is_told_and_kept(tmp_path: Path, text: str) -> None:
    path = tmp_path / "n.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"n\.json"):
        Notebook(path).load()
    assert path.read_text() == text


def test_the_next_round_knows_the_exploring_patients_alone(tmp_path: Path) -> None:
    """Neither the verdict nor an estimate of the confirming patients reaches a proposal."""
    secret = {"confirmed": "hazard ratio 7.77", "verdict": "supported", "badge": "supported: 7.77",
              "reason": "7.77", "because": "evidence"}  # fmt: skip
    quiet = {"confirmed": None, "verdict": "inconclusive", "badge": "b", "reason": "r",
             "because": "power"}  # fmt: skip
    views = [
        (history([found], (), ()), earlier_claims([found]))
        for found in (finding(1, came="held", **secret), finding(1, came="held", **quiet))
    ]
    assert views[0] == views[1]
    assert "7.77" not in views[0][0].model_dump_json()
    assert views[0][0].claims[0].verdict == "supported in the exploring patients"


@pytest.mark.parametrize(
    ("request_", "seen"),
    [
        ({"confirm": 0.5, "seed": 0}, [1]),
        ({"confirm": 0.5, "seed": 1}, [2]),
        ({"confirm": 0.4, "seed": 0}, []),
        ({"confirm": "other", "seed": 0}, [1, 2, 3]),
    ],
)
def test_what_was_explored_in_patients_that_confirm_is_not_known(
    request_: dict[str, object], seen: list[int]
) -> None:
    """Campaigns that share a notebook hold back the same patients, or know nothing of the other."""
    findings = [
        finding(1, held_back=held_back(0.5, 0)),
        finding(2, held_back=held_back(0.5, 1)),
        finding(3),
        finding(4, cohort="another", held_back=held_back(0.5, 0)),
    ]
    mine = plan(spec={"prompt": "q", "cohort": "toy"} | request_)
    assert [each.round for each in _same_patients(findings, "toy", mine)] == seen


def test_the_pages_show_what_a_cohort_says_and_obey_nothing_of_it(tmp_path: Path) -> None:
    bad = "<script>alert(1)</script> [x](javascript:alert(1)) {{ 7*7 }}"
    notebook = Notebook(tmp_path / "n.json")
    notebook.enter(asked(question=bad))
    notebook.add("c", 2, [
        finding(1, statement=bad, why=bad),
        finding(2, came="dead end", verdict="", badge="", hypothesis=None, reason=bad),
    ])  # fmt: skip
    page = write_pages(notebook)
    text = page.read_text()
    assert "<script" not in text
    assert text.count("&lt;script&gt;") >= 4
    assert "script-src 'none'" in text
    assert "49" not in text
    markdown = (tmp_path / "n.md").read_text()
    assert re.search(r"(?<!\\)\]\(javascript", markdown) is None
    assert re.search(r"(?<!\\)<script", markdown) is None


def plan(**changes: object) -> Plan:
    told = {"id": "c", "created": "now", "rounds": 3, "notebook": "n",
            "spec": {"prompt": "q", "cohort": "toy", "confirm": 0.5}, "settings": {}}  # fmt: skip
    return Plan.model_validate(told | changes)


NONE = [Earlier(id="c/r1-h1", hypothesis=PER_SD, came="none")]


@pytest.mark.parametrize(
    ("name", "earlier", "given", "moves", "says"),
    [
        ("the literature first", [], {}, 0, ""),
        ("what held goes on", [Earlier(id="c", hypothesis=PER_SD, came="held")], {}, 1, ""),
        ("an explanation waits for fresh claims", NONE, {}, 0, ""),
        ("until there are none", NONE, {"widened": 2}, 1, ""),
        ("nothing left", [], {"widened": 2}, 0, "nothing is left to test"),
        ("too little to learn", [], {"least_bits": 0.9}, 0, "expected information too low"),
        ("a failure explained is too little", NONE, {"widened": 2, "least_bits": 0.2}, 0,
         "expected information too low"),
    ],
)  # fmt: skip
def test_the_rules_for_going_on_and_stopping(
    name: str, earlier: list[Earlier], given: dict[str, object], moves: int, says: str
) -> None:
    chosen, why = _chosen(earlier, plan(**given), KNOWN)
    assert len(chosen) == moves, name
    assert why.startswith(says) if says else not why


def test_a_campaign_is_held_by_one_process_and_found_by_its_name(tmp_path: Path) -> None:
    settings = Settings(runs_dir=tmp_path / "runs")
    folder = begin_campaign(RunSpec(prompt="TLS?"), settings, rounds=2, overrides={})
    name = folder.root.name
    with folder.hold(), pytest.raises(InputError, match="process"), folder.hold():
        pass
    for called in (name, name[:12], str(folder.root), "last"):
        found = find_campaign(called, settings.runs_dir)
        assert found is not None
        assert found.root == folder.root
    assert find_campaign("nothing", settings.runs_dir) is None
    with pytest.raises(InputError, match="empty"):
        begin_campaign(RunSpec(prompt="TLS?"), settings, rounds=1, overrides={}, out=folder.root)
    with pytest.raises(InputError, match="prompt"):
        begin_campaign(RunSpec(prompt="  "), settings, rounds=1, overrides={})
    (folder.root / "campaign.json").write_text(json.dumps({"id": 3}))
    with pytest.raises(InputError, match=r"campaign\.json"):
        CampaignFolder(folder.root).plan()

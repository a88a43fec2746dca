"""Explorations: models that print rows, smuggle values and lie; no patient reaches them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sage.core.llm.trace import read_trace
from sage_nova.code_acting.exploring import (
    Tables,
    build_exploration,
    check_exploration,
    make_task,
    write_inputs,
)
from sage_nova.code_acting.inside import run_step
from sage_nova.code_acting.types import Acted, CodeAnswer
from sage_nova.tests.conftest import Reply, replies
from tests.end_to_end.harness import Done, environment, sage
from tests.openai_server import serve
from tests.sandbox.boxes import working
from validation import simulate
from validation.cohort import load
from validation.screening.look import look_at

pytestmark = pytest.mark.bubblewrap

QUESTION = "Which measured variables move with TLS density?"
READ = """
import json
import pandas as pd
t = pd.read_parquet("/inputs/table.parquet")
def leave(name, kinds, rows):
    columns = [{"name": one, "kind": kind} for one, kind in kinds.items()]
    rows = [{"name": row, "values": values} for row, values in rows.items()]
    given = {"tables": [{"name": name, "columns": columns, "rows": rows}]}
    open("exploratory.json", "w").write(json.dumps(given))
"""
CORRELATE = """
rows = {}
for name in ("imaging:til_density", "imaging:stroma_fraction", "clinical:age"):
    both = t[[name, "imaging:tls_density"]].dropna()
    rows[name] = [len(both), float(both.corr("spearman").iloc[0, 1])]
leave("correlations", {"patients": "count", "rho": "estimate"}, rows)
"""
ABSTAINS = {"answer": None, "reason": "Nothing was found."}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    working("bubblewrap")
    return simulate.write_world(tmp_path_factory.mktemp("world") / "world", seed=3, patients=120)


def explore(world: Path, folder: Path, url: str, *more: str) -> Done:
    return sage(
        "nova", "explore", str(world), QUESTION, "--sandbox", "bubblewrap", "--memory", "1024",
        "--out", "out", *more, cwd=folder, SAGE_BASE_URL=url, SAGE_API_KEY="none" if url else "",
        SAGE_LEDGER=str(folder / "ledger"), SAGE_RETRIES="0",
    )  # fmt: skip


def play_replies(
    world: Path, folder: Path, said: list[Reply], *more: str
) -> tuple[Done, list[dict[str, Any]]]:
    with serve(replies(*said)) as server:
        return explore(world, folder, server.url, *more), server.requests


def canaries(world: Path) -> set[str]:
    """Patients' names and exact values, as a program might write them."""
    cohort = load(str(world))
    table = cohort.table([*cohort.keys()], list(cohort.spec.endpoints))
    found = {name for pair in cohort.pseudonyms.items() for name in pair}
    for name in table.select_dtypes("number").columns:
        for value in table[name].dropna():
            exact = f"{float(value):.6g}"
            if len(exact.replace(".", "").replace("-", "").lstrip("0")) >= 6:
                found |= {exact, exact.replace(".", ""), f"{float(value):.9g}"}
    assert len(found) > 1000
    return found


def test_a_model_sees_tables_alone_and_answers_from_them(world: Path, tmp_path: Path) -> None:
    numbers = load(str(world)).table(["imaging:til_density", "imaging:tls_density"]).dropna()
    rho = f"{float(numbers.corr('spearman').iloc[0, 1]):.3g}"
    answer = {
        "answer": f"TIL density moves with it (rho {rho}, one of three comparisons); a candidate.",
        "values": {"rho": float(rho)}, "files": [], "reason": "",
    }  # fmt: skip
    forged = (
        "from pathlib import Path\nPath('_sage').mkdir(exist_ok=True)\n"
        'open("_sage/request.json", "w").write(json.dumps([[str(t.iloc[0].to_dict()), {}, 0]]))'
    )
    ended, requests = play_replies(
        world, tmp_path,
        [READ + "print(t.to_string())\nt.iloc[0].tolist()", CORRELATE, forged,
         answer | {"answer": "TIL density: rho 0.987 in the patients, significantly."},
         answer | {"files": ["figure.png"]}, answer],
        "--json",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    text = json.dumps([request["messages"] for request in requests], ensure_ascii=False)
    assert [canary for canary in canaries(world) if canary in text] == []
    said = [message["content"] for message in requests[-1]["messages"][2:]
            if message["role"] in ("tool", "user")]  # fmt: skip
    assert json.loads(said[0]) == {"step": 1}
    shown = str((len(numbers) + 2) // 5 * 5)
    assert ["imaging:til_density", shown, rho] in json.loads(said[1])["tables"][0]["rows"]
    assert "has no tools" in said[2]
    assert "0.987 does not appear" in said[3] and '"signific" is a judgment' in said[3]
    prompt = requests[0]["messages"][1]["content"]
    assert "imaging:tls_density" in prompt and "outcome" not in prompt.lower()
    assert ended.json["title"].startswith("Exploratory, written by a model, not prespecified")
    assert ended.json["answer"] == answer["answer"]
    assert ended.json["looked"].endswith("genes against no outcome")
    assert ended.json["appendix"]["tables"][0]["name"] == "step 2: correlations"
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} >= {
        "appendix.json", "session.json", "analysis.py", "trace.jsonl",
    }  # fmt: skip
    assert not list(out.rglob("*.parquet")) and not (out / "running").exists()
    assert json.loads((out / "session.json").read_text())["own_functions"] == ["leave"]
    assert [line.kind for line in read_trace(out / "trace.jsonl")].count("tool") == 3
    assert not (tmp_path / "ledger").exists()  # no outcome was shown, so nothing is spent


SMUGGLED = {
    "a count of one patient": 'one = float(t["imaging:tls_density"].iloc[0])\n'
    'leave("single", {"patients": "count", "density": "estimate"}, {"first": [1, one]})',
    "a value as an estimate": 'leave("single", {"patients": "count", "density": "estimate"},'
    ' {"first": [9, float(t["imaging:tls_density"].dropna().iloc[0])]})',
    "estimates of nobody": 'leave("single", {"density": "estimate"}, {"first": [1.5]})',
    "values as counts": 'v = [round(1e5 * x) for x in t["imaging:tls_density"].dropna().head()]\n'
    'leave("single", {"patients": "count", "density": "estimate"}, {"first": [v[0], 1.5],'
    ' "second": [8.5, 2.5], "third": [None, 3.5], "fourth": [-9, 4.5]})',
    "two counts that differ by a patient": 'n = len(t)\nleave("sizes", {"patients": "count"},'
    ' {"all": [n], "without": [n - 1], "rest": [1]})',
    "values as labels": 'rows = {f"x{v}": [9] for v in t["imaging:tls_density"].head()}\n'
    'leave("single", {"patients": "count"}, rows)',
    "names of files": 'for v in t["imaging:tls_density"].head():\n    open(f"d{v}.txt", "w")',
    "a figure's name and comments": "from PIL import Image, PngImagePlugin\n"
    "note = PngImagePlugin.PngInfo()\n"
    'note.add_text("row", str(t.iloc[0].to_dict()))\n'
    'Image.new("RGB", (8, 8)).save(f"v{t.iloc[0, 0]}.png", pnginfo=note)',
    "an error's message": "raise ValueError(str(t.iloc[0].to_dict()))",
    "an exit": "raise SystemExit(str(t.iloc[0].to_dict()))",
    "a last value": "t.head()",
}
HIDDEN: dict[str, list[tuple[str, ...]]] = {
    "a count of one patient": [("first", "<5", "withheld")],
    "a value as an estimate": [("first", "10", "withheld")],
    "values as counts": [(row, "–", "withheld") for row in ("first", "second", "third", "fourth")],
    "two counts that differ by a patient": [("all", "120"), ("without", "120"), ("rest", "<5")],
}


def test_no_way_of_a_program_carries_a_patient_to_the_model(
    world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cohort = load(str(world))
    look = look_at(cohort)
    inputs = write_inputs(cohort, look, tmp_path / "inputs")
    view, secrets = Tables.from_inputs(inputs, look, 5), canaries(world)
    seen = {}
    for name, smuggle in SMUGGLED.items():
        view.shown.clear()
        out = tmp_path / "running"
        out.mkdir()
        monkeypatch.chdir(out)
        code = READ.replace("/inputs", str(tmp_path / "inputs")) + smuggle
        left = run_step(1, code, {})
        monkeypatch.chdir(tmp_path)
        seen[name] = view.observe([(1, code)], left, out, tmp_path / "files")
        assert not out.exists()
        text = seen[name]["error"] + str(seen[name]["tables"]) + str(seen[name]["left_out"])
        assert [canary for canary in secrets if canary in text] == [], name
    for name, rows in HIDDEN.items():
        assert list(seen[name]["tables"][0].rows) == rows
    for name in ("estimates of nobody", "values as labels"):
        assert not seen[name]["tables"] and seen[name]["left_out"], name
    assert seen["an error's message"]["error"].endswith("ValueError")
    (image,) = (tmp_path / "files").iterdir()
    assert image.name == "image-1.png" and b"imaging" not in image.read_bytes()


def test_an_outcome_is_shown_where_it_is_named_and_spent_from_then_on(
    world: Path, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(
        READ + 'leave("events", {"patients": "count"}, {"all": [int(t["OS.event"].sum())]})'
    )
    for more in ((), ("--replace",)):  # again is the same look
        ended = explore(world, tmp_path, "", "--program", "look.py", "--endpoint", "OS", *more)
        assert ended.code == 0, ended.err
        assert "Recorded in the ledger" in ended.out and "see the tables" in ended.out
        shown = sage(
            "validate", "ledger", "show", "--cohort", str(world), "--json", cwd=tmp_path,
            SAGE_LEDGER=str(tmp_path / "ledger"),
        )  # fmt: skip
        # The competing outcome is read from the same time.
        assert shown.json["screens"] == 2, shown.out


def test_the_first_prompt_holds_no_small_count(world: Path, tmp_path: Path) -> None:
    few = tmp_path / "few"
    shutil.copytree(world, few)
    lines = (few / "imaging.csv").read_text().splitlines()
    head = lines[0].split(",")
    at = head.index(load(str(few)).spec.variables["til_density"].column)
    cells = [line.split(",") for line in lines[1:]]
    for number, row in enumerate(cells):
        row[at] = row[at] if number < 3 else ""
    (few / "imaging.csv").write_text("\n".join(map(",".join, [head, *cells])))
    cohort = load(str(few))
    look = look_at(cohort, endpoints=["nodes"])
    session: Any = SimpleNamespace(limits=SimpleNamespace(seconds=1.0))
    given: Any = make_task(cohort, look, 50).build_input(session, QUESTION, 3)
    (line,) = [text for text in given.variables if "imaging:til_density" in text]
    assert line.endswith("too few patients") and given.outcomes[0].startswith("nodes.value: ")
    levels = [text.partition("; levels ")[2] for text in given.variables]
    counts = [int(item.split()[-1]) for text in levels if text for item in text.split(", ")]
    # With an exact count its small neighbor would be what is left of the patients.
    assert len(counts) > 3 and min(counts) >= 50 and {count % 50 for count in counts} == {0}


def test_a_stopped_exploration_leaves_no_row_and_no_other_works_beside_it(
    world: Path, tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text("import time\ntime.sleep(300)")
    line = (
        sys.executable, "-m", "sage", "nova", "explore", str(world), QUESTION, "--program",
        "slow.py", "--sandbox", "bubblewrap", "--out", "out",
    )  # fmt: skip
    slow = subprocess.Popen(line, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    try:
        rows, begun = [], False
        for _ in range(600):
            rows = list((tmp_path / "out").rglob("*.parquet"))
            children = Path(f"/proc/{slow.pid}/task").glob("*/children")
            begun = any(
                Path(f"/proc/{child}/comm").read_text() == "bwrap\n"
                for listed in children
                for child in listed.read_text().split()
            )
            if rows and begun:
                break
            time.sleep(0.2)
        assert rows and begun
        beside = explore(world, tmp_path, "", "--program", "slow.py")
        assert beside.code == 2 and "in use by another process" in beside.err
        slow.terminate()
        assert slow.wait(timeout=120) == 143
    finally:
        slow.kill()
    assert not list((tmp_path / "out").rglob("*.parquet"))
    assert not (tmp_path / "out" / "running").exists()


def test_an_interrupted_exploration_goes_on_without_asking_again(
    world: Path, tmp_path: Path
) -> None:
    ended, requests = play_replies(world, tmp_path, ["1"])
    assert ended.code != 0 and not (tmp_path / "out" / "session.json").exists()
    assert not list((tmp_path / "out").rglob("*.parquet"))
    ended, again = play_replies(world, tmp_path, ["1", ABSTAINS])
    assert ended.code == 0, ended.err
    assert len(requests) >= 2 and len(again) == 1


def test_what_cannot_be_explored_is_said(world: Path, tmp_path: Path) -> None:
    patient = load(str(world)).patients[0]
    for more, why in (
        (("--variable", "clinical:agee"), 'no variable "clinical:agee"'),
        (("--program", "absent.py"), "not a readable text"),
        (("--endpoint", "OS", "--budget-usd", "1"), "--budget-usd requires prices"),
    ):
        ended = explore(world, tmp_path, "http://127.0.0.1:1/v1", *more)
        assert ended.code == 2 and why in ended.err, ended.err
    assert not (tmp_path / "ledger").exists()  # what did not begin spent nothing
    with serve(replies("1")) as server:
        ended = sage(
            "nova", "explore", str(world), f"How is {patient}?", "--sandbox", "bubblewrap",
            cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none",
        )  # fmt: skip
    assert ended.code == 1 and "names a patient" in ended.err and not server.requests


def test_a_run_shows_its_explorations_apart(finished: Path, tmp_path: Path) -> None:
    working("bubblewrap")
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    before = (run / "results.json", *(run / "hypotheses").rglob("*"))
    kept = {path: path.read_bytes() for path in before if path.is_file()}
    (tmp_path / "look.py").write_text(READ + CORRELATE)
    killed = run / "explorations" / "1" / "inputs"
    killed.mkdir(parents=True)
    (killed / "table.parquet").write_text("rows of one that was killed")
    line = ("nova", "explore", "run", QUESTION, "--program", "look.py", "--sandbox", "bubblewrap")
    ended = sage(*line, cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert not killed.exists()
    assert {path: path.read_bytes() for path in kept} == kept
    page = (run / "report.html").read_text()
    apart = page[page.index('id="explorations"') : page.index('id="ledger"')]
    assert apart.count("Exploratory, written by a person, not prespecified") == 2
    assert QUESTION in apart and QUESTION not in page.replace(apart, "")
    assert "imaging:til density" in apart and "rho" in apart
    again = sage("admin", "replay", "run", "--out", "again", "--json", cwd=tmp_path)
    assert again.json["same"] is True, again.err
    shown = run / "outputs" / "explorations" / "2" / "exploration.json"
    shown.write_text(shown.read_text().replace("rho", "hro"))
    forged = sage("admin", "replay", "run", "--out", "again", cwd=tmp_path)
    assert forged.code == 2 and "exploration.json was changed" in forged.err.replace("\n", "")


def test_who_abstains_claims_nothing() -> None:
    claimed = CodeAnswer(answer=None, reason="TLS protect (hazard ratio 0.31): supported.")
    said = check_exploration("", [], claimed)
    assert "0.31 does not appear" in said[0] and '"support" is a judgment' in said[1]
    acted = Acted(
        question="?", data={}, by="model", sandbox="docker", outcome="abstained", statement="",
        answer=CodeAnswer(answer=None, reason="No scale."),
    )  # fmt: skip
    assert build_exploration(acted, "").answer == "No answer: No scale."
    failed = acted.model_copy(update={"answer": None, "error": "no usable reply"})
    assert build_exploration(failed, "").answer == "No answer: no usable reply"

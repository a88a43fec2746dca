"""Explorations: models that print rows, smuggle values and lie; no patient reaches them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sage.core.llm.trace import read_trace
from sage_nova.code_acting.exploring import (
    build_exploration,
    check_exploration,
    most_shown,
)
from sage_nova.code_acting.types import Acted, CodeAnswer
from tests.end_to_end.harness import Done, environment, sage
from tests.openai_server import Answer, serve
from tests.sandbox.boxes import working
from tests.validation.core_help import ROOT, shared
from validation import simulate
from validation.cohort import load

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


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    working("bubblewrap")
    return simulate.write_world(tmp_path_factory.mktemp("world") / "world", seed=3, patients=120)


def replies(*said: str | dict[str, Any]) -> Callable[[dict[str, Any]], Answer]:
    """A server's answers by how far the conversation is: a program to run, or a final object."""

    def answer(body: dict[str, Any]) -> Answer:
        place = sum(message["role"] == "assistant" for message in body["messages"])
        reply = said[place] if place < len(said) else {"status": 500}
        if isinstance(reply, dict):
            if "status" in reply:
                return Answer(content="down", status=reply["status"])
            return Answer(content=json.dumps(reply))
        arguments = json.dumps({"thought": "see", "code": reply})
        function = {"name": "act", "arguments": arguments}
        call = {"id": f"c{place}", "type": "function", "function": function}
        return Answer(delta={"tool_calls": [call]})

    return answer


def explore(world: Path, folder: Path, url: str, *more: str, ledger: str = "ledger") -> Done:
    return sage(
        "nova", "explore", str(world), QUESTION, "--sandbox", "bubblewrap", "--memory", "1024",
        "--out", "out", *more, cwd=folder, SAGE_BASE_URL=url, SAGE_API_KEY="none" if url else "",
        SAGE_LEDGER=str(folder / ledger), SAGE_RETRIES="0",
    )  # fmt: skip


def play_replies(
    world: Path, folder: Path, said: list[str | dict[str, Any]], *more: str
) -> tuple[Done, list[dict[str, Any]]]:
    with serve(replies(*said)) as server:
        return explore(world, folder, server.url, *more), server.requests


def sent(requests: list[dict[str, Any]]) -> str:
    """All that a model ever got to read."""
    return json.dumps([request["messages"] for request in requests], ensure_ascii=False)


def list_results(requests: list[dict[str, Any]]) -> list[str]:
    """Texts of tools and refusals, in order."""
    messages = requests[-1]["messages"][2:]
    return [message["content"] for message in messages if message["role"] in ("tool", "user")]


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


def round_count(count: int) -> str:
    """A count as a model is shown it."""
    return str((count + 2) // 5 * 5)


def require_silent(world: Path, requests: list[dict[str, Any]]) -> None:
    text = sent(requests)
    assert [canary for canary in canaries(world) if canary in text] == []


def test_a_model_sees_tables_alone_and_answers_from_them(world: Path, tmp_path: Path) -> None:
    numbers = load(str(world)).table(["imaging:til_density", "imaging:tls_density"]).dropna()
    rho = f"{float(numbers.corr('spearman').iloc[0, 1]):.3g}"
    answer = {
        "answer": f"TIL density moves with it (rho {rho}, one of three comparisons); a candidate.",
        "values": {"rho": float(rho)}, "files": [], "reason": "",
    }  # fmt: skip
    ended, requests = play_replies(
        world, tmp_path,
        [READ + "print(t.to_string())\nt.iloc[0].tolist()", CORRELATE,
         answer | {"answer": "TIL density: rho 0.987 in the patients."},
         answer | {"answer": "TIL density is significantly and independently related."},
         answer | {"files": ["figure.png"]}, answer],
    )  # fmt: skip
    assert ended.code == 1 and "no usable reply" in ended.err  # three lies use the repairs up
    require_silent(world, requests)
    said = list_results(requests)
    assert json.loads(said[0]) == {"step": 1}
    rows = json.loads(said[1])["tables"][0]["rows"]
    assert ["imaging:til_density", round_count(len(numbers)), rho] in rows
    assert "0.987 does not appear" in said[2] and '"signific" is a judgment' in said[3]
    prompt = requests[0]["messages"][1]["content"]
    assert "imaging:tls_density" in prompt and "outcome" not in prompt.lower()

    ended, _ = play_replies(world, tmp_path, [READ, CORRELATE, answer], "--replace", "--json")
    assert ended.code == 0, ended.err
    found = ended.json
    assert found["title"].startswith("Exploratory, written by a model, not prespecified")
    assert found["answer"] == answer["answer"]
    assert found["looked"].endswith("genes against no outcome")
    assert found["appendix"]["tables"][0]["name"] == "step 2: correlations"
    out = tmp_path / "out"
    assert {path.name for path in out.iterdir()} >= {
        "appendix.json", "session.json", "analysis.py", "session.ipynb", "trace.jsonl",
    }  # fmt: skip
    assert not list(out.rglob("*.parquet")) and not (out / "running").exists()
    assert json.loads((out / "session.json").read_text())["own_functions"] == ["leave"]
    assert [line.kind for line in read_trace(out / "trace.jsonl")].count("tool") == 2
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
    "values as columns": 'leave("single", {f"d{t.iloc[0, 0]}": "count"}, {"first": [9]})',
    "a table per patient": 'leave("single", {"density": "estimate"},'
    ' {n: [v] for n, v in zip(t.columns, t["imaging:tls_density"].head(40))})\n'
    'given = json.loads(open("exploratory.json").read())\ngiven["tables"] *= 40\n'
    'open("exploratory.json", "w").write(json.dumps(given))',
    "names of files": 'for v in t["imaging:tls_density"].head():\n    open(f"d{v}.txt", "w")',
    "a figure's name, pixels and comments": "from PIL import Image, PngImagePlugin\n"
    "note = PngImagePlugin.PngInfo()\n"
    'note.add_text("row", str(t.iloc[0].to_dict()))\n'
    'Image.new("RGB", (8, 8), tuple(int(v) % 256 for v in t.iloc[:3, 0].fillna(0)))'
    '.save(f"v{t.iloc[0, 0]}.png", pnginfo=note)',
    "an error's message": "raise ValueError(str(t.iloc[0].to_dict()))",
    "an error's name": 'raise type("E" + str(t["imaging:tls_density"].iloc[0]), (Exception,), {})',
    "a forged traceback": 'raise Exception(f"\\n{t.iloc[0].to_dict()}\\nKeyError: {t.iloc[1, 0]}")',
    "a tool's name": "from pathlib import Path\nPath('_sage').mkdir(exist_ok=True)\n"
    'open("_sage/request.json", "w").write(json.dumps([[str(t.iloc[0].to_dict()), {}, 0]]))',
    "an exit": "raise SystemExit(str(t.iloc[0].to_dict()))",
    "a last value": "t.head()",
}


def test_no_way_of_a_program_carries_a_patient_to_the_model(world: Path, tmp_path: Path) -> None:
    nothing = {"answer": None, "reason": "Nothing was found."}
    ended, requests = play_replies(world, tmp_path, [READ, *SMUGGLED.values(), nothing])
    assert ended.code == 0, ended.err
    require_silent(world, requests)
    said = dict(zip(SMUGGLED, list_results(requests)[1:], strict=False))
    rows = json.loads(said["a count of one patient"])["tables"][0]["rows"]
    assert rows == [["first", "<5", "withheld"]]
    rows = json.loads(said["a value as an estimate"])["tables"][0]["rows"]
    assert rows == [["first", "10", "withheld"]]
    rows = json.loads(said["values as counts"])["tables"][0]["rows"]
    assert rows == [[name, "–", "withheld"] for name in ("first", "second", "third", "fourth")]
    rows = json.loads(said["two counts that differ by a patient"])["tables"][0]["rows"]
    assert rows == [["all", "120"], ["without", "120"], ["rest", "<5"]]
    assert "without a column of counts" in said["estimates of nobody"]
    for name in ("values as labels", "values as columns", "a table per patient"):
        assert "tables" not in json.loads(said[name]), name
        assert json.loads(said[name])["left_out"], name
    assert json.loads(said["a figure's name, pixels and comments"])["files"] == ["image-1.png"]
    assert json.loads(said["an error's message"])["error"].endswith("ValueError")
    assert json.loads(said["an error's name"])["error"].endswith("an error")
    assert "has no tools" in said["a tool's name"]
    kept = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    for canary in canaries(world):
        assert canary.encode() not in kept, canary


def test_an_outcome_is_shown_where_it_is_named_and_spent_from_then_on(
    world: Path, tmp_path: Path
) -> None:
    (tmp_path / "look.py").write_text(
        READ + 'leave("events", {"patients": "count"}, {"all": [int(t["OS.event"].sum())]})'
    )
    hypothesis = {
        "id": "age", "statement": "Older patients die earlier.",
        "population": {"description": "all"}, "comparison": "exposed_vs_rest", "endpoint": "OS",
        "exposures": [{"variable": "clinical:age", "label": "age", "level": "high",
                       "cut": "median"}], "direction": "higher_risk",
    }  # fmt: skip
    (tmp_path / "age.json").write_text(json.dumps(hypothesis))
    line = ("--program", "look.py", "--endpoint", "OS")
    ended = explore(world, tmp_path, "", *line)
    assert ended.code == 0, ended.err
    assert "Recorded in the ledger" in ended.out and "see the tables" in ended.out
    shown = sage(
        "validate", "ledger", "show", "--cohort", str(world), "--json", cwd=tmp_path,
        SAGE_LEDGER=str(tmp_path / "ledger"),
    )  # fmt: skip
    # The competing outcome is read from the same time.
    assert shown.json["screens"] == 2, shown.out
    judged = sage(
        "validate", "run", "age.json", "--cohort", str(world), "--no-figures", "--json",
        cwd=tmp_path, SAGE_LEDGER=str(tmp_path / "ledger"),
    )  # fmt: skip
    assert judged.code == 0, judged.err
    assert judged.json[0]["verdict"]["verdict"] != "supported"
    noted = (tmp_path / "sage-validation" / "ledger.jsonl").read_text()
    assert "clinical:age was screened against OS before" in noted
    explore(world, tmp_path, "", *line, "--replace")  # again is the same look
    shown = sage(
        "validate", "ledger", "show", "--cohort", str(world), "--json", cwd=tmp_path,
        SAGE_LEDGER=str(tmp_path / "ledger"),
    )  # fmt: skip
    assert shown.json["screens"] == 2


def test_a_session_shows_so_many_numbers_and_no_more(world: Path, tmp_path: Path) -> None:
    fill = (
        'given = {"tables": [{"name": "block", "columns": [{"name": "n", "kind": "count"}] * 8,'
        ' "rows": [{"name": "row", "values": [STEP + 50.0] * 7 + [k]} for k in range(20)]}]}\n'
        'open("exploratory.json", "w").write(json.dumps(given))'
    )
    steps = [fill.replace("STEP", f"{5 * number}") for number in range(12)]
    nothing = {"answer": None, "reason": "Nothing was found."}
    ended, requests = play_replies(world, tmp_path, [READ, *steps, nothing])
    assert ended.code == 0, ended.err
    said = [json.loads(result) for result in list_results(requests)[1:]]
    labels_and_numbers = 9 * 21
    most = most_shown(len((world / "clinical.csv").read_text().splitlines()) - 1)
    assert [bool(result.get("tables")) for result in said] == [
        (number + 1) * labels_and_numbers <= most for number in range(12)
    ]
    assert f"beyond the {most} labels and numbers" in said[-1]["left_out"][0]


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
    (tmp_path / "sage.toml").write_text("min_count = 50\n")
    nothing = {"answer": None, "reason": "Nothing was found."}
    ended, requests = play_replies(few, tmp_path, [nothing], "--endpoint", "nodes")
    assert ended.code == 0, ended.err
    prompt = requests[0]["messages"][1]["content"]
    (line,) = [text for text in prompt.splitlines() if "imaging:til_density" in text]
    assert line.endswith("too few patients")
    levels = [text.partition("; levels ")[2] for text in prompt.splitlines()]
    counts = [int(item.split()[-1]) for text in levels if text for item in text.split(", ")]
    assert len(counts) > 3 and min(counts) >= 50
    # With an exact count its small neighbor would be what is left of the patients.
    assert {count % 50 for count in counts} == {0}


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
    answer = {"answer": None, "reason": "Nothing."}
    ended, requests = play_replies(world, tmp_path, [READ, CORRELATE])
    assert ended.code != 0 and not (tmp_path / "out" / "session.json").exists()
    assert not list((tmp_path / "out").rglob("*.parquet"))
    ended, again = play_replies(world, tmp_path, [READ, CORRELATE, answer])
    assert ended.code == 0, ended.err
    assert len(requests) >= 3 and len(again) == 1
    ended, _ = play_replies(world, tmp_path, [answer])
    assert ended.code == 2 and "--replace" in ended.err


def test_what_cannot_be_explored_is_said(world: Path, tmp_path: Path) -> None:
    for more, why in (
        (("--variable", "clinical:agee"), 'no variable "clinical:agee"'),
        (("--endpoint", "XX"), 'no endpoint "XX"'),
        (("--program", "absent.py"), "not a readable text"),
        ((), "no model is set"),
        (("--endpoint", "OS", "--budget-usd", "1"), "--budget-usd requires prices"),
    ):
        url = "http://127.0.0.1:1/v1" if more else ""
        ended = explore(world, tmp_path, url, *more)
        assert ended.code == 2 and why in ended.err, ended.err
    assert not (tmp_path / "ledger").exists()  # what did not begin spent nothing


def test_a_question_that_names_a_patient_is_not_sent(world: Path, tmp_path: Path) -> None:
    patient = load(str(world)).patients[0]
    with serve(replies("1")) as server:
        ended = sage(
            "nova", "explore", str(world), f"How is {patient}?", "--sandbox", "bubblewrap",
            cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none",
        )  # fmt: skip
    assert ended.code == 1 and "names a patient" in ended.err and not server.requests


def test_a_model_explores_real_patients_step_by_step(tmp_path: Path) -> None:
    working("bubblewrap")
    files = shared("tcga_blca")
    answer = {"answer": "Too few comparisons to say.", "values": {}, "files": [], "reason": ""}
    density = '"imaging:tls_density"'
    program = f"""
genes = pd.read_parquet("/inputs/expression.parquet")
rows = {{}}
for name in ("expression:CXCL13", "expression:MS4A1"):
    both = pd.concat([t[{density}], genes[name]], axis=1).dropna()
    rows[name] = [len(both), float(both.corr("spearman").iloc[0, 1])]
leave("genes", {{"patients": "count", "rho": "estimate"}}, rows)
"""
    with serve(replies(READ + "t", program, answer, answer)) as server:
        ended = sage(
            "nova", "explore", str(ROOT / "docs/cohorts/tcga-blca"), QUESTION,

            "--cohort-root", str(files), "--sandbox", "bubblewrap", "--steps", "2", "--json",
            cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none",
        )  # fmt: skip
    assert ended.code == 0, ended.err
    (table,) = ended.json["appendix"]["tables"]
    assert [row[0] for row in table["rows"]] == ["expression:CXCL13", "expression:MS4A1"]
    assert all(int(row[1]) > 200 and 0 < float(row[2]) < 1 for row in table["rows"])
    assert "TCGA-" not in sent(server.requests).replace("TCGA-BLCA", "").replace("TCGA-CDR", "")
    assert "No more tools can be called" in list_results(server.requests)[-1]


def test_the_program_of_the_docs_shows_its_table(tmp_path: Path) -> None:
    working("bubblewrap")
    part = (ROOT / "docs" / "nova.md").read_text().partition("## Exploring a cohort")[2]
    (tmp_path / "look.py").write_text(part.partition("```python\n")[2].partition("```")[0])
    ended = sage(
        "nova", "explore", "demo", QUESTION, "--program", "look.py", "--sandbox", "bubblewrap",
        "--json", cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    (table,) = ended.json["appendix"]["tables"]
    assert table["rows"][0][0] == "imaging:til_density" and float(table["rows"][0][2]) > 0
    (tmp_path / "empty.py").write_text("print(1)")
    ended = sage(
        "nova", "explore", "demo", QUESTION, "--program", "empty.py", "--sandbox", "bubblewrap",
        "--out", "empty", cwd=tmp_path,
    )  # fmt: skip
    assert ended.code == 0 and "did not write exploratory.json" in ended.out


def test_a_run_shows_its_explorations_apart(finished: Path, tmp_path: Path) -> None:
    working("bubblewrap")
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    before = json.loads((run / "results.json").read_text())
    kept = {path: path.read_bytes() for path in (run / "hypotheses").rglob("*") if path.is_file()}
    (tmp_path / "look.py").write_text(READ + CORRELATE)
    line = ("nova", "explore", "run", QUESTION, "--program", "look.py", "--sandbox", "bubblewrap")
    killed = run / "explorations" / "1" / "inputs"
    killed.mkdir(parents=True)
    (killed / "table.parquet").write_text("rows of one that was killed")
    for _ in range(2):
        ended = sage(*line, cwd=tmp_path)
        assert ended.code == 0, ended.err
    assert not killed.exists()
    assert {path: path.read_bytes() for path in kept} == kept
    assert json.loads((run / "results.json").read_text()) == before
    page = (run / "report.html").read_text()
    apart = page[page.index('id="explorations"') : page.index('id="ledger"')]
    assert apart.count("Exploratory, written by a person, not prespecified") == 4
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
    answer = CodeAnswer(answer=None, reason="No scale.")
    acted = Acted(
        question="?", data={}, by="model", sandbox="docker", outcome="abstained", answer=answer,
        statement="",
    )  # fmt: skip
    assert build_exploration(acted, "").answer == "No answer: No scale."


def test_a_run_says_which_exploration_ended_without_an_answer(
    finished: Path, tmp_path: Path
) -> None:
    working("bubblewrap")
    run = tmp_path / "run"
    shutil.copytree(finished, run)
    lie = {"answer": "TIL density: rho 0.987.", "values": {}, "files": [], "reason": ""}
    line = ("nova", "explore", "run", QUESTION, "--sandbox", "bubblewrap")
    with serve(replies(READ + CORRELATE, lie, lie, lie)) as server:
        ended = sage(*line, cwd=tmp_path, SAGE_BASE_URL=server.url, SAGE_API_KEY="none")
    assert ended.code == 1 and "0.987 does not appear" in ended.err
    (sentence,) = [
        text for text in (run / "report.md").read_text().splitlines() if "No answer" in text
    ]
    assert "no usable reply" in sentence and "0.987 does not appear" in sentence
    again = sage("admin", "replay", "run", "--out", "again", "--json", cwd=tmp_path)
    assert again.json["same"] is True, again.err

"""The main job, as its user meets it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.end_to_end.harness import PROMPT, REPO, cache_dir, core_only, events, sage
from tests.openai_server import Answer, serve


def test_a_prompt_ends_in_a_report_with_a_verdict(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert re.search(r'class="verdict (supported|not_supported|inconclusive)"', page)
    assert PROMPT in page


def test_simulated_data_are_labelled_in_every_output(finished: Path) -> None:
    assert "Simulated cohort" in (finished / "report.html").read_text()
    assert "Simulated cohort" in (finished / "report.md").read_text()
    results = json.loads((finished / "hypotheses/h1/results/results.json").read_text())
    assert results["simulated"] is True
    crate = json.loads((finished / "ro-crate-metadata.json").read_text())
    assert any("simulated" in str(item.get("description", "")) for item in crate["@graph"])


def test_a_claim_is_told_as_one_under_whatever_came_of_it(finished: Path) -> None:
    text = (finished / "report.md").read_text()
    for part in re.split(r"^## (?=h\d+:)", text, flags=re.MULTILINE)[1:]:
        title, verdict, summary, *_ = part.split("\n\n")
        assert verdict.startswith("**Verdict:"), title
        assert summary.startswith("Claim tested: ")
        meaning = next(line for line in part.splitlines() if line.startswith("Clinical meaning"))
        told = "Clinical meaning. " if "**Verdict: supported" in verdict else "written before the"
        assert told in meaning
        adjusted = next(line for line in part.splitlines() if "Instruction: Repeat" in line)
        contract = json.loads((finished / f"hypotheses/{title[:2]}/contract.json").read_text())
        covariates = (contract.get("contract") or contract)["hypothesis"]["covariates"]
        assert all(covariate in adjusted for covariate in covariates), adjusted


def test_every_number_of_the_page_names_a_key_of_results_json(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    keys = set(re.findall(r'<data value="([^"]+)"', page))
    known = json.loads((finished / "results.json").read_text())
    assert len(keys) > 50
    assert keys <= set(known)


def test_every_citation_of_the_page_is_a_source_of_the_corpus(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    cited = set(re.findall(r"doi:(10\.[^\s<]+)", page))
    shipped = " ".join(path.read_text() for path in (REPO / "data/corpus").glob("*.md"))
    assert cited
    assert all(doi.lower() in shipped.lower() for doi in cited)


def test_a_step_that_is_known_from_another_cancer_alone_says_so(finished: Path) -> None:
    """CCL21's only paper is of the kidney, the question of the bladder: one passage names the
    cancer itself, the other's title does."""
    lines = (finished / "report.md").read_text().splitlines()
    said = {line for line in lines if "in papers on" in line}
    elsewhere = "in papers on metastatic renal cell carcinoma only"
    assert all(elsewhere in line for line in said)
    assert {line.partition(" (")[0] for line in said} == {
        "- CCL21 associated with overall survival",
        "- CCL21 recruits dendritic cell",
    }


def test_the_page_needs_nothing_from_outside(finished: Path) -> None:
    page = (finished / "report.html").read_text()
    assert not re.search(r'(?:src|href)="https?:', page)
    assert "<script" not in page
    assert '<img src="data:image/svg+xml;base64,' in page


def test_replay_rebuilds_the_same_report_with_the_core_alone(
    finished: Path, tmp_path: Path
) -> None:
    out = tmp_path / "again"
    ended = sage(
        "admin", "replay", str(finished), "--out", str(out), cwd=tmp_path,
        **core_only(tmp_path / "core"), SAGE_CACHE_DIR=str(tmp_path / "empty"),
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert (out / "report.html").read_bytes() == (finished / "report.html").read_bytes()


def test_the_contract_was_frozen_before_the_analysis_began(finished: Path) -> None:
    order = [
        (event["event"], event.get("node"))
        for event in events(finished)
        if event.get("hypothesis") == "h1"
    ]
    assert order.index(("frozen", None)) < order.index(("start", "coding"))


def test_error_control_runs_over_all_hypotheses_of_the_run(finished: Path) -> None:
    results = json.loads((finished / "hypotheses/h1/results/results.json").read_text())
    assert results["numbers"]["ledger.claims"]["value"] == 2


def test_no_patient_and_no_row_enters_an_agent_output(finished: Path) -> None:
    """Pseudonyms exist only in the prepared tables; agents saw names and aggregates."""
    import pandas as pd

    table = pd.read_parquet(finished / "hypotheses/h1/results/inputs/all/table.parquet")
    pseudonyms = [str(item) for item in table.index if len(str(item)) > 4] or [
        str(item) for item in table.iloc[:, 0] if len(str(item)) > 4
    ]
    cohort = next((cache_dir() / "cohorts").glob("demo-*"))
    identifiers = pd.read_csv(cohort / "clinical.csv").iloc[:, 0].astype(str).tolist()
    text = "".join(path.read_text() for path in (finished / "outputs").glob("*.json"))
    assert not [identifier for identifier in (*identifiers, *pseudonyms) if identifier in text]


def test_every_turn_is_traced_replays_and_exports_as_spans(finished: Path, tmp_path: Path) -> None:
    ended = sage(
        "admin", "replay", str(finished), "--out", str(tmp_path / "again"), "--json", cwd=tmp_path
    )  # fmt: skip
    trace = ended.json["trace"]
    assert trace["answered"] > 10 and trace["human"] >= 1
    assert trace["unanswered"] == 0 and trace["untraced"] == []
    out = tmp_path / "spans.json"
    exported = sage("exchange", "trace", str(finished), "--out", str(out), cwd=tmp_path)
    assert exported.code == 0, exported.err
    spans = json.loads(out.read_text())["resourceSpans"][0]["scopeSpans"][0]["spans"]
    assert len(spans) == trace["answered"] + trace["human"] + trace["turns"]
    assert "invoke_agent scientist" in {span["name"] for span in spans}


def test_show_and_runs_tell_what_came_of_it(finished: Path) -> None:
    shown = sage("show", str(finished), "--json", cwd=finished.parent).json
    assert shown["manifest"]["status"] == "finished"
    assert {step["step"] for step in shown["spending"]} >= {"scientist", "novelty", "coding"}
    listed = sage("show", "--json", cwd=finished.parent, SAGE_RUNS_DIR=str(finished.parent)).json
    assert [item["id"] for item in listed] == ["run"]


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on a cohort with competing deaths, over papers that do not bear on its claim."""
    from validation.simulate import write_world

    place = tmp_path_factory.mktemp("odd")
    write_world(place / "world", seed=5, patients=250)
    description = place / "world" / "cohort.toml"
    sections = re.split(r"(?m)^(?=\[)", description.read_text())
    kept = [section for section in sections if not re.match(r"\[endpoints\.(?!cause\])", section)]
    description.write_text("".join(kept))
    (place / "corpus").mkdir()
    (place / "corpus" / "other.md").write_text(
        "---\ntitle: Survival after BCG in bladder cancer\nyear: 2015\n---\n\n"
        "- Overall survival in bladder cancer was longer after BCG.\n"
    )
    run = place / "run"
    ended = sage(
        "run", PROMPT, "--cohort", str(place / "world"), "--auto-approve", "--out", str(run),
        cwd=place, SAGE_RUN__CORPUS=str(place / "corpus"), NO_FIGURES="",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    return run


def test_a_cohort_with_competing_deaths_ends_in_a_report_of_incidence(odd: Path) -> None:
    page = (odd / "report.html").read_text()
    assert "Aalen-Johansen estimate" in page
    assert "cumulative_incidence.exposed.at_36" in page
    assert re.search(r"sHR \d", page)
    claimed = json.loads((odd / "hypotheses/h1/contract.json").read_text())["contract"]["tests"]
    assert [item["method"] for item in claimed if item["claim"]] == ["cause_specific"]


def test_where_nothing_found_bears_on_the_claim_novelty_is_not_judged(odd: Path) -> None:
    page = (odd / "report.html").read_text()
    debate = page[page.index("<summary>Novelty debate") : page.index("<summary>Feasibility")]
    assert "not judged" in debate
    assert not re.search(r'value="h1\.novelty\.score"[^>]*>\d', page)
    assert "local index of 1 records" in debate


def test_show_counts_what_a_failed_step_spent(tmp_path: Path) -> None:
    run = tmp_path / "run"
    prices = 'name = "m"\nprice_in = 10.0\nprice_out = 10.0\nmax_tokens = 500\n'
    (tmp_path / "sage.toml").write_text(
        "".join(f"[models.{role}]\n{prices}" for role in ("nano", "mini", "high"))
    )
    slow = Answer("x" * 400, silent=3)
    with serve(lambda body: slow) as server:
        ended = sage(
            "run", PROMPT, "--reasoner", "chat", "--auto-approve", "--out", str(run), cwd=tmp_path,
            SAGE_TIMEOUT_S="1", SAGE_BASE_URL=server.url,
        )  # fmt: skip
        assert len(server.requests) == 1, "what ran out of time is not asked for again"
    assert ended.code == 1
    assert "agent question" in ended.err and "1 s" in ended.err
    assert "Traceback" not in ended.err
    (row,) = sage("show", str(run), "--json", cwd=tmp_path).json["spending"]
    assert (row["step"], row["times"], row["failed"]) == ("question", 0, 1)
    assert (row["calls"], row["unanswered"], row["completion_tokens"]) == (1, 1, 500)
    assert row["usd"] > 500 * 10 / 1e6
    assert "1 without" in " ".join(sage("show", str(run), cwd=tmp_path).out.split())


def test_an_estimate_tells_calls_tokens_and_money_and_calls_nothing(tmp_path: Path) -> None:
    prices = "price_in = 1.0\nprice_out = 10.0\n"
    (tmp_path / "sage.toml").write_text(
        "".join(
            f'[models.{role}]\nname = "m-{role}"\n{prices}' for role in ("nano", "mini", "high")
        )
    )
    with serve(lambda body: Answer("{}")) as server:
        args = ("run", PROMPT, "--reasoner", "chat", "--estimate")
        one = sage(*args, "--json", cwd=tmp_path).json
        two = sage(*args, "--hypotheses", "2", "--json", cwd=tmp_path).json
        shown = sage(*args, "--budget-usd", "0.01", cwd=tmp_path)
        assert not server.requests
    assert not (tmp_path / "runs").exists()
    agents = {row["agent"]: row for row in one["agents"]}
    assert {"path_generation", "prover", "validation_agent", "summary"} <= set(agents)
    for row in one["agents"]:
        assert 1 <= row["calls"] <= row["calls_most"]
        assert 0 < row["prompt_tokens"] <= row["prompt_tokens_most"]
        assert row["usd"] == pytest.approx(
            (row["prompt_tokens"] + 10 * row["completion_tokens"]) / 1e6
        )
    assert one["usd"] == pytest.approx(sum(row["usd"] for row in one["agents"]))
    assert one["usd"] < two["usd"] < 2 * one["usd"] and one["usd"] < one["usd_most"]
    assert agents["prover"]["calls_most"] == 3 * 4
    assert "is probably too small" in " ".join(shown.out.split())
    free = sage("run", PROMPT, "--reasoner", "rules", "--estimate", cwd=tmp_path)
    assert "calls no model" in free.out

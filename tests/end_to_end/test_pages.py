"""From a question to a report through the pages, as a person goes, in Chromium."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import events
from tests.sage.web.pages import browser_marks, fits, looking, serious, serving, until

pytestmark = [*browser_marks, pytest.mark.timeout(900)]
QUESTION = "Link tertiary lymphoid structures and genes in bladder cancer"


def test_a_question_becomes_an_edited_reviewed_and_finished_report(tmp_path: Path) -> None:
    with serving(tmp_path) as served, looking() as page:
        page.goto(served.address)
        page.wait_for_selector("#question")
        page.wait_for_load_state("networkidle")
        weight = page.evaluate(
            "['navigation', 'resource'].flatMap(kind => performance.getEntriesByType(kind))"
            ".reduce((sum, one) => sum + one.encodedBodySize, 0)"
        )
        assert 10_000 < weight <= 2_000_000

        page.fill("#question", QUESTION)
        # In an empty cache the first reading makes cohort and graph.
        page.wait_for_selector(".parts li:has-text('imaging:tls_density')", timeout=240_000)
        assert "no language model" in page.inner_text("#cost")
        assert serious(page) == []
        page.click("#start:not([disabled])")

        page.wait_for_selector("#events li", state="attached")
        (run,) = (path for path in (tmp_path / "runs").iterdir() if path.name[0] != ".")
        page.wait_for_selector("#to-review", timeout=120_000)
        page.click("[data-step='/scientist']")
        page.wait_for_selector("#agent article")
        assert "the data dictionary" in page.inner_text("#agent")
        assert serious(page) == []
        assert not (run / "hypotheses").exists()

        page.click("#to-review")
        page.wait_for_selector(".statement")
        assert "overall survival" in page.inner_text(".statement")
        assert serious(page) == []
        # By keyboard alone: open the editor, choose another endpoint, take the edit, send it.
        page.focus("summary:has-text('Edit the hypothesis')")
        page.keyboard.press("Enter")
        page.focus("#endpoint")
        page.keyboard.type("Progression")
        page.wait_for_selector("#differences td:has-text('PFI')")
        assert "overall survival" not in page.inner_text(".statement")
        assert "80% power" in page.inner_text("#power")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press("e")
        page.wait_for_selector("[data-decide=edit][aria-pressed=true]")
        page.focus("#reviewer")
        page.keyboard.type("Ana")
        page.focus("#send")
        page.keyboard.press("Enter")

        # A pause lets the step under way end, and holds; nothing that was finished runs again.
        page.click("#pause", timeout=180_000)
        page.wait_for_selector("#status:has-text('paused')", timeout=180_000)
        assert json.loads((run / "manifest.json").read_text())["status"] == "paused"
        finished = sum(event["event"] == "end" for event in events(run))
        page.click("#resume")
        page.wait_for_selector("#to-report", timeout=180_000)
        page.wait_for_selector("#status:has-text('finished')")
        ends = [(e["node"], e.get("hypothesis")) for e in events(run) if e["event"] == "end"]
        assert len(ends) > finished
        assert ends.count(("scientist", None)) == 1

        contract = json.loads((run / "hypotheses/h1/contract.json").read_text())["contract"]
        assert contract["hypothesis"]["endpoint"] == "PFI"
        # The answer comes first: verdict, sentence, effect and curve; steps and cost are folded.
        for seen in (".claim .pill", "h1.answer", ".claim .number", ".claim img"):
            page.wait_for_selector(seen)
            box = page.locator(seen).first.bounding_box()
            assert box and box["y"] < 720, seen
        until(lambda: page.evaluate("document.querySelector('.claim img').naturalWidth"))
        assert not page.locator("[data-step]").first.is_visible()
        assert serious(page) == []
        sentence = page.inner_text("h1.answer")
        page.goto(served.origin)
        page.wait_for_selector(f".card:has-text('{sentence[:40]}') img")
        assert serious(page) == []
        page.click(".card h3 a")
        page.click("#to-report")
        page.wait_for_url("**/report*")
        page.wait_for_load_state()
        shown = page.inner_text("body")
        assert "Edited by a person" in shown
        assert "by Ana" in page.content()
        # On the first screen: verdict, sentence and figure.
        for seen in (".verdict", "h1", ".front figure img"):
            box = page.locator(seen).first.bounding_box()
            assert box and box["y"] < 720, seen
        assert page.locator(".front figure img").first.evaluate("image => image.naturalWidth") > 0
        assert serious_in_report(page.context.browser, run / "report.html") == []


def serious_in_report(browser: Any, report: Path) -> list[str]:
    """The report on a phone, opened as a file: it fits, and a screen reader can read it."""
    page = browser.new_page(viewport={"width": 360, "height": 740})
    page.goto(report.as_uri())
    page.wait_for_selector("h1")
    assert fits(page)
    page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert fits(page)
    # The specification curve by keyboard: each estimate shows the choices that made it.
    page.locator(".curve input").first.focus()
    tips = []
    for _ in range(2):
        page.keyboard.press("ArrowRight")
        (tip,) = (tip for tip in page.locator(".curve .tip").all() if tip.is_visible())
        tips.append(tip.inner_text())
    assert tips[0] != tips[1] and "covariates:" in tips[0]
    # On paper the drawn figure stands in its place.
    page.emulate_media(media="print")
    assert not page.locator(".curve").first.is_visible()
    assert page.locator("figure.printed").first.is_visible()
    page.emulate_media(media="screen")
    return serious(page)


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from tests.end_to_end.harness import sage

    folder = tmp_path_factory.mktemp("pages")
    ended = sage("run", QUESTION, "--json", "--hypotheses", "2", cwd=folder)
    assert ended.json["status"] == "waiting for review"
    return folder


def test_two_reviewers_have_to_agree_before_anything_is_tested(waiting: Path) -> None:
    run = next((waiting / "runs").glob("2*"))
    with serving(waiting, "--reviewers", "2") as served, looking() as page:
        page.goto(served.address)
        page.wait_for_selector("h1")
        page.goto(f"{served.origin}/review?run={run.name}")

        def decide(name: str, *ways: str) -> None:
            page.wait_for_selector("#card-h2 .statement")
            for hypothesis, way in zip(("h1", "h2"), ways, strict=True):
                page.click(f"#card-{hypothesis} [data-decide={way}]")
                if way == "ignore":
                    page.fill(f"#why-{hypothesis}", "too little is expected of it")
            page.fill("#reviewer", name)
            page.click("#send:not([disabled])")

        page.wait_for_selector("#card-h1 .statement")
        page.fill("#reviewer", "Ana")
        page.fill("[aria-label='comment on h1']", "<b>why</b> COL1A1?")
        page.click("#card-h1 button:has-text('Comment')")
        page.wait_for_selector("#card-h1 li:has-text('<b>why</b> COL1A1?')")
        decide("Ana", "ignore", "ignore")
        page.wait_for_selector("[role=status]")
        page.wait_for_selector("#card-h2 li:has-text('decided')")
        decide("Ben", "accept", "ignore")  # they differ about h1
        page.wait_for_selector("#card-h1 li:has-text('Ben')")
        assert json.loads((run / "manifest.json").read_text())["status"] == "waiting for review"
        decide("Ben", "ignore", "ignore")
        page.wait_for_selector("#to-report", timeout=120_000)
        page.wait_for_selector("#status:has-text('finished')")
        assert "too little is expected of it" in (run / "report.html").read_text()
        assert not (run / "hypotheses").exists()


def test_graph_and_cohort_are_looked_at(waiting: Path) -> None:
    run = next((waiting / "runs").glob("2*"))
    with serving(waiting) as served, looking() as page:
        page.goto(served.address)
        page.wait_for_selector("h1")
        page.goto(f"{served.origin}/graph")
        page.fill("#concept", "FABP5")
        page.wait_for_selector(".parts button:has-text('FABP5')")
        page.press("#concept", "Enter")
        page.wait_for_selector("[data-node='Gene:FABP5']")
        relations = page.locator("#relations li")
        today = relations.count()
        page.click("#relations li button >> nth=0")
        page.wait_for_selector("#edge blockquote")
        assert re.search(r"doi:10\.|PMID", page.inner_text("#edge"))
        assert serious(page) == []
        page.select_option("#sign", "contradicted")
        until(lambda: relations.count() < today)
        page.select_option("#sign", "any sign")
        oldest = page.get_attribute("#year", "min")
        page.evaluate(
            "year => { const slider = document.querySelector('#year'); slider.value = +year + 1;"
            " slider.dispatchEvent(new Event('change')); }", oldest,
        )  # fmt: skip
        until(lambda: page.locator("[role=alert]").count() or relations.count() < today)
        page.reload()
        page.wait_for_selector("#relations li")
        page.select_option("#paper", index=1)
        until(lambda: 0 < relations.count() < today)
        for kind in ("json", "svg"):
            with page.expect_download() as saved:
                page.click(f"#save-{kind}")
            text = saved.value.path().read_text()
            if kind == "json":
                kept = json.loads(text)
                assert len(kept["edges"]) == relations.count() < today
                ends = {end for edge in kept["edges"] for end in (edge["s"], edge["t"])}
                assert ends <= set(range(len(kept["nodes"]))) and kept["filters"]["paper"]
            else:
                assert "FABP5" in text and "<script" not in text
        page.select_option("#paper", "")
        page.fill("#since", page.get_attribute("#since", "max"))
        until(lambda: relations.count() < today)
        page.select_option("#paths", run.name)
        page.wait_for_selector("ol li button")

        page.goto(f"{served.origin}/cohorts?cohort=demo")
        page.wait_for_selector("#variables td:has-text('imaging:tls_density')")
        page.fill("#find", "stage")
        page.wait_for_selector("#variables td:has-text('imaging:tls_density')", state="detached")
        page.wait_for_selector("#findings")
        assert serious(page) == []


def test_every_page_fits_a_phone_in_the_dark(waiting: Path) -> None:
    run = next((waiting / "runs").glob("2*"))
    pages = {
        "/": "#question",
        f"/runs/{run.name}": "[data-step]",
        f"/review?run={run.name}": "main p",
        "/compare": "select",
        "/graph?node=FABP5": "#relations li",
        "/cohorts?cohort=demo": "#variables td",
    }
    with (
        serving(waiting) as served,
        looking(viewport={"width": 360, "height": 740}, color_scheme="dark") as page,
    ):
        page.goto(served.address)
        for path, there in pages.items():
            page.goto(served.origin + path)
            page.wait_for_selector(there)
            assert fits(page), path
            assert serious(page) == [], path

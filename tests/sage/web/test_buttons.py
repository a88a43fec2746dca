"""What the pages offer to whom: a button that a role forbids says so, and does nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.end_to_end.test_read_slides_run import QUESTION, write_cohort
from tests.mcp_servers.slide_tools import blobs, pyramid
from tests.sage.web.pages import browser_marks, looking, serving

pytestmark = browser_marks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slides").mkdir()
    pyramid(tmp_path / "slides" / "small.tif", np.ascontiguousarray(blobs(1600, 1600)), 0.5)
    (tmp_path / "roles.toml").write_text('[people]\nrita = "read"\nrob = "run"\n')
    return tmp_path


def test_a_button_that_a_role_forbids_says_which_role_it_needs(folder: Path) -> None:
    options = ("--root", "slides", "--trust-header", "X-User", "--roles", "roles.toml")
    with serving(folder, *options) as served:
        with looking(extra_http_headers={"X-User": "rita"}) as page:
            page.goto(served.address)
            page.fill("#question", "How do TLS relate to overall survival in bladder cancer?")
            page.wait_for_selector("#start[disabled]")
            assert "needs the role “run”; you have: read" in page.get_attribute("#start", "title")
            page.goto(f"{served.origin}/slides#slide=small")
            page.wait_for_selector("[data-open=yes]")
            page.click("#add-middle")
            page.wait_for_selector("[data-nuclei='0'][disabled]")
            assert "review" in page.get_attribute("#save-regions", "title")
        with looking(extra_http_headers={"X-User": "rob"}) as page:
            page.goto(served.address)
            page.goto(f"{served.origin}/slides#slide=small")
            page.wait_for_selector("[data-open=yes]")
            page.click("#add-middle")
            page.click("[data-nuclei='0']")
            page.wait_for_selector("#nuclei:has-text('nuclei in')")
            page.wait_for_selector("p:has-text('nuclei found here')")


def test_slides_to_read_are_offered_where_the_cohort_has_some(tmp_path: Path) -> None:
    write_cohort(tmp_path / "cohorts", slides=())  # makes the folder; the cohort lies in it
    with serving(tmp_path) as served, looking() as page:
        asked: list[str] = []

        def answered(route: Any) -> None:
            asked.append(route.request.post_data)
            route.fulfill(status=422, json={"error": "not started: this is a test"})

        page.route("**/api/runs", lambda route: answered(route)
                   if route.request.method == "POST" else route.continue_())  # fmt: skip
        understood = {"intent": "", "parts": [], "lines": [], "notes": [], "refusals": [],
                      "mismatches": []}  # fmt: skip
        page.route("**/api/ask", lambda route: route.fulfill(json=understood))
        page.goto(served.address)
        page.fill("#question", QUESTION)
        assert page.locator("#read-slides").count() == 0  # the demonstration cohort has none
        page.locator("select").first.select_option("simulated-slides")
        page.select_option("#read-slides", "2")
        page.screenshot(path=str(tmp_path / "home.png"))
        page.click("#start:not([disabled])")
        page.wait_for_selector("text=not started")
    assert json.loads(asked[0])["read_slides"] == 2

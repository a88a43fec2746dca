"""What the pages offer to whom: a button that a role forbids says so, and does nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.mcp_servers.slide_tools import blobs, pyramid
from tests.sage.web.pages import browser_marks, looking, serving

pytestmark = browser_marks


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "slides").mkdir()
    pyramid(tmp_path / "slides" / "small.tif", np.ascontiguousarray(blobs(1000, 1000)), 0.5)
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

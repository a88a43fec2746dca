"""A server of the pages in a process of its own, and Chromium to look at them with."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.harness import environment
from tests.warm import Warm

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
AXE = Path(__file__).with_name("axe.min.js")
browser_marks = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
]


@dataclass(frozen=True)
class Served:
    """Where a server listens, and the folder that it was started in."""

    address: str
    folder: Path

    @property
    def origin(self) -> str:
        """Scheme, host and port."""
        return self.address.partition("/?")[0]


@contextmanager
def serving(folder: Path, *options: str, **env: str) -> Iterator[Served]:
    """`sage serve` on a free port in `folder`."""
    given = {"SAGE_LEDGER": str(folder / "ledger.sqlite")} | environment(**env)
    process: Warm | subprocess.Popen[str]
    if "PYTHONPATH" in env:  # other modules than those that are warm
        process = subprocess.Popen(
            [sys.executable, "-m", "sage", "serve", "--port", "0", *options],
            cwd=folder, env=given, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
    else:
        process = Warm(["serve", "--port", "0", *options], cwd=folder, env=given, piped=True)
    try:
        assert process.stderr is not None
        line = process.stderr.readline()
        found = re.search(r"open (http\S+)", line)
        assert found, line + (process.stderr.read() if process.poll() is not None else "")
        yield Served(found[1], folder)
    finally:
        process.terminate()
        process.wait(timeout=30)


@contextmanager
def looking(**context: Any) -> Iterator[Any]:
    """A page of Chromium; what a page logs as an error, or throws, fails the test."""
    from playwright.sync_api import sync_playwright

    wrong: list[str] = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_context(**context).new_page()
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
        page.set_default_timeout(60_000)
        yield page
        browser.close()
    # A refused edit is an answer of the server, which the browser logs as well.
    errors = [text for text in wrong if "status of 422" not in text]
    assert not errors, errors[:5]


def serious(page: Any) -> list[str]:
    """What a screen reader's user would stumble over: axe's serious and critical findings."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{item['id']}: {node['html'][:120]} {node['failureSummary'][:200]}"
        for item in found["violations"]
        if item["impact"] in ("serious", "critical")
        for node in item["nodes"]
    ]


def fits(page: Any) -> bool:
    """Whether nothing is wider than the screen."""
    return bool(page.evaluate("document.documentElement.scrollWidth <= innerWidth"))


def until(what: Any, seconds: float = 120) -> Any:
    """The first true value of `what`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := what():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")

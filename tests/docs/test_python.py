"""Every block of Python in the pages runs as it stands, where what it names is there."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.docs.examples import PAGES, ROOT, blocks
from tests.docs.shell import DEFAULTS
from tests.sandbox.boxes import working
from tests.warm import HERE, run_warm

BLOCKS = [
    (page.relative_to(ROOT).as_posix(), number, block)
    for page in PAGES
    for number, block in enumerate(blocks(page, "python"))
    if page.name != "python.md" or block not in blocks(ROOT / "README.md", "python")
]
"""docs/python.md repeats some of the README's."""


@pytest.mark.parametrize("where, number, block", BLOCKS, ids=[f"{w}-{n}" for w, n, _ in BLOCKS])
def test_a_block_of_python_runs(where: str, number: int, block: str, here: Path) -> None:
    words = ["-c", block]
    if "/inputs/" in block:  # a program for the sandbox, where the table of a cohort stands there
        working("bubblewrap")
        (here / "early.py").write_text(block)
        words = ["nova", "explore", "demo", "Who relapses early?", "--endpoint", "OS",
                 "--program", "early.py"]  # fmt: skip
    more = DEFAULTS if "Run." in block else {HERE: "1"}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    more = {**more, "PATH": path, "HOME": str(here)}  # all that a client passes to its server
    done = run_warm(words, cwd=here, env={**os.environ, **more}, timeout=120)
    assert done.returncode == 0, done.stderr


def test_there_are_blocks() -> None:
    assert len(BLOCKS) >= 4

"""What `make test-fast` keeps is a whole run; what it leaves out lies in files that exist."""

from __future__ import annotations

from pathlib import Path

from conftest import KEPT, ROOT, SLOW


def test_the_tests_of_the_whole_run_exist() -> None:
    for name in KEPT:
        file, _, function = name.partition("::")
        assert f"def {function}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), name


def test_the_list_of_slow_tests_names_files_that_exist() -> None:
    names = [line.split()[0] for line in SLOW.read_text(encoding="utf-8").splitlines()]
    assert names == sorted(set(names))
    assert [name for name in names if not _file(name).is_file()] == []


def _file(name: str) -> Path:
    file = name.partition("::")[0]
    return ROOT / file if file.startswith("plugins/") else ROOT / "tests" / file

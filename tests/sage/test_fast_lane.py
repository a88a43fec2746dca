"""What `make test-fast` keeps is a whole run; what it leaves out lies in files that exist."""

from __future__ import annotations

from tests.conftest import HERE, KEPT, SLOW


def test_the_tests_of_the_whole_run_exist() -> None:
    for name in KEPT:
        file, _, function = name.partition("::")
        assert f"def {function}(" in (HERE / file).read_text(encoding="utf-8"), name


def test_the_list_of_slow_tests_names_files_that_exist() -> None:
    names = SLOW.read_text(encoding="utf-8").split()
    assert names == sorted(set(names))
    assert [name for name in names if not (HERE / name.partition("::")[0]).is_file()] == []

"""What `make test-fast` leaves out by name exists; what it keeps is a whole run."""

from __future__ import annotations

from tests.conftest import HERE, KEPT, SLOW


def test_every_slow_or_kept_test_exists() -> None:
    for name in (*SLOW.read_text(encoding="utf-8").split(), *KEPT):
        file, _, function = name.partition("::")
        assert f"def {function}(" in (HERE / file).read_text(encoding="utf-8"), name

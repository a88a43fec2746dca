"""Comments and votes of reviewers, in folders and in PostgreSQL."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sage.settings import Settings
from sage.web.reviews import FILE, Reviews, open_reviews
from tests.postgres import NEEDED, server
from tests.sage.web.test_site import write_run


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with server() as found:
        yield found


@pytest.fixture(params=["folder", pytest.param("postgres", marks=NEEDED)])
def reviews(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reviews]:
    """Reviews of either kind."""
    if request.param == "folder":
        with open_reviews(Settings(runs_dir=tmp_path)) as found:
            yield found
        return
    told = {"runs_dir": tmp_path, "checkpoint_url": request.getfixturevalue("url")}
    with open_reviews(Settings.model_validate(told)) as found:
        yield found


def test_what_many_say_at_once_is_kept_in_order_and_apart(reviews: Reviews, tmp_path: Path) -> None:
    """The folder is whole in either case, and what it held before a database is not lost."""
    one, other = write_run(tmp_path / "a", "q"), write_run(tmp_path / "b", "q")
    Reviews().add(one, "Eve", hypothesis="h1", text="before")
    assert [note["text"] for note in reviews.entries(one)] == ["before"]

    def say(who: str) -> None:
        for number in range(8):
            reviews.add(one, who, hypothesis="h1", text=f"é {number}")

    people = [threading.Thread(target=say, args=(who,)) for who in ("Ana", "Ben", "Cyd")]
    for person in people:
        person.start()
    for person in people:
        person.join()
    notes = reviews.entries(one)
    assert [note["text"] for note in notes if note["reviewer"] == "Ben"] == [
        f"é {number}" for number in range(8)
    ]
    assert (len(notes), notes[0]["reviewer"]) == (25, "Eve")
    assert sorted(map(str, Reviews().entries(one))) == sorted(map(str, notes))
    assert reviews.entries(other) == []
    if type(reviews) is not Reviews:
        (one.root / FILE).unlink()
        assert reviews.entries(one) == notes

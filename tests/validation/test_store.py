"""The ledger's store in SQLite and in a real PostgreSQL: rows, chain, patients, merging."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sage.core.errors import FaultError, InputError
from tests.postgres import NEEDED, server
from tests.validation.core_help import ROOT, load, patients
from validation.ledger.patients import PILOTS, Patients, profiles, twins
from validation.ledger.store import Mark, Row, first_chain, open_store, read_lines


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with server() as url:
        yield url


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=NEEDED)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where an empty store may lie."""
    if request.param == "sqlite":
        return str(tmp_path / "store" / "ledger.sqlite")
    import psycopg

    url: str = request.getfixturevalue("database")
    with psycopg.connect(url, autocommit=True) as db:
        for table in ("sage_ledger", "sage_ledger_tokens", "sage_ledger_meta"):
            db.execute(f"DROP TABLE IF EXISTS {table}")
    return url


def row(name: str, kind: str = "entry", population: str = "them") -> Row:
    return Row(kind, name, population, json.dumps({"contract": name}))  # type: ignore[arg-type]


def test_rows_stand_once_in_their_order_under_one_chain(place: str) -> None:
    store = open_store(place)
    first = store.append([row("a"), row("b")])
    again = open_store(place).append([row("b"), row("c")])
    assert [item.seq for item in (*first, *again)] == [1, 2, 2, 3]
    assert store.id == open_store(place).id
    chain = first_chain(store.id)
    for entry in store.all_rows():
        chain = entry.chain_hash(chain)
    head = store.head()
    assert head is not None
    assert (head.seq, head.chain) == (3, chain)
    assert [row.contract for row in store.rows(["them"])] == ["a", "b", "c"]
    assert [item.seq for item in store.of_contract(["c"])] == [3]
    assert store.problems() == []
    assert store.lacks([head]) is None
    assert store.lacks([head.model_copy(update={"seq": 2})]) is not None


def test_patients_are_found_by_their_records(place: str, tmp_path: Path) -> None:
    raw = patients(300)
    store = open_store(place)
    mine = Patients(load(tmp_path / "mine", raw))
    population = mine.population
    store.append([Row("population", "", population.digest, "{}", population.pack)])
    known = raw.assign(patient=[f"X{at}" for at in range(300)])
    cases = {
        "the same": (raw, True),
        "other identifiers, another order": (known.sample(frac=1, random_state=1), True),
        "a fifth of them": (known.sample(frac=0.2, random_state=2), True),
        "pooled with others": (pd.concat([known, patients(300, seed=8)]).assign(
            patient=[f"Y{at}" for at in range(600)]), True),
        "strangers": (patients(300, seed=9), False),
    }  # fmt: skip
    for name, (table, expected) in cases.items():
        found = store.same_patients(Patients(load(tmp_path / name, table)))
        assert bool(found) is expected, name
        if found:
            stored, match = found[population.digest]
            assert stored.digest == population.digest
            assert len(match.pilots) >= 8


def test_a_merged_store_is_known_by_what_folders_remember(place: str, tmp_path: Path) -> None:
    source = open_store(str(tmp_path / "other.sqlite"))
    rows = source.append([row("a"), row("b")])
    store = open_store(place)
    store.append([row("b"), row("z")])
    lines = list(source.export_lines())
    assert store.take(read_lines(lines, "other")) == 1
    assert store.take(read_lines(lines, "other")) == 0
    assert sorted(row.contract for row in store.all_rows() if row.contract) == ["a", "b", "z"]
    marks = [json.loads(line) for line in lines]
    assert store.lacks(Mark(store=source.id, seq=mark["seq"], chain=mark["chain"])
                       for mark in marks) is None  # fmt: skip
    assert [row.at for row in store.all_rows() if row.contract == "a"] == [rows[0].at]
    assert store.problems() == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [lines[0], lines[1].replace('\\"b\\"', '\\"x\\"')], "line 2"),
        (lambda lines: lines[1:], "line 1"),
        (lambda lines: [lines[0], lines[1][:40]], "line 2"),
    ],
)
def test_an_edited_export_is_refused_whole(tmp_path: Path, change, message: str) -> None:
    source = open_store(str(tmp_path / "other.sqlite"))
    source.append([row("a"), row("b")])
    store = open_store(str(tmp_path / "mine.sqlite"))
    with pytest.raises(InputError, match=message):
        store.take(read_lines(change(list(source.export_lines())), "ledger-2026.jsonl"))
    assert store.head() is None


def _write(place: str, writer: int) -> None:
    store = open_store(place)
    for number in range(6):
        store.append([row(f"{writer}-{number}")])


def test_four_writers_at_once_lose_nothing(place: str) -> None:
    fork = multiprocessing.get_context("fork")
    writers = [fork.Process(target=_write, args=(place, writer)) for writer in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(120)
    store = open_store(place)
    assert [writer.exitcode for writer in writers] == [0] * 4
    assert {row.contract for row in store.all_rows()} == {
        f"{writer}-{number}" for writer in range(4) for number in range(6)
    }
    assert store.problems() == []


ENDLESS = """
import sys
from validation.ledger.store import Row, open_store
store = open_store(sys.argv[1])
for number in range(100000):
    store.append([Row("entry", f"c{number}", "them", str(number))])
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing_that_it_acknowledged(place: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", ENDLESS, place], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert process.stdout is not None
    said = [process.stdout.readline() for _ in range(12)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().splitlines()
    process.wait()
    store = open_store(place)
    there = {row.contract for row in store.all_rows()}
    assert {f"c{int(number)}" for number in said if number.strip()} <= there
    assert store.problems() == []
    store.append([row("after")])


def test_a_clock_that_is_set_back_places_nothing_before_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(str(tmp_path / "ledger.sqlite"))
    store.append([row("a")])
    monkeypatch.setattr("validation.ledger.store.now", lambda: "1999-01-01T00:00:00.000000Z")
    store.append([row("b")])
    assert [row.contract for row in store.rows(["them"])] == ["a", "b"]


@pytest.mark.parametrize(
    ("url", "error", "message"),
    [
        ("mysql://host/db", InputError, "mysql"),
        ("postgresql://sage:hunter2@127.0.0.1:9/ledger", FaultError, "127.0.0.1/ledger"),
        ("{folder}", InputError, "{folder}"),
        ("{text}", InputError, "text.sqlite"),
        ("/proc/none/ledger.sqlite", InputError, "/proc/none"),
    ],
)
def test_a_place_that_is_no_store_is_one_clear_message(
    tmp_path: Path, url: str, error: type[Exception], message: str
) -> None:
    text = tmp_path / "text.sqlite"
    text.write_text("no database at all, but long enough to be read as one" * 20)
    with pytest.raises(error, match=message.format(folder=tmp_path)) as found:
        open_store(url.format(folder=tmp_path, text=text))
    assert "hunter2" not in str(found.value)


# -- fingerprints and ranks -----


def test_a_variable_is_known_under_another_scale_and_strangers_are_not() -> None:
    rng = np.random.default_rng(1)
    values = rng.normal(size=(2000, PILOTS))
    values[1990:] = rng.random((10, PILOTS)) < 0.05  # rare mutations
    stored = profiles(values)
    same = {
        "as it is": values[7],
        "its logarithm": np.log(values[7] - values[7].min() + 1),
        "reversed and in other units": -1000 * values[7],
        "rounded": np.round(values[7], 1),
        "cut at its median": (values[7] > np.median(values[7])).astype(float),
        "with noise": values[7] + rng.normal(scale=0.05, size=PILOTS),
    }
    for name, column in same.items():
        assert list(twins(column, stored)) == [7], name
        half = np.arange(PILOTS) % 2 == 0
        assert list(twins(column[half], stored[:, half])) == [7], name
    for _ in range(20):
        assert not len(twins(rng.normal(size=PILOTS), stored))
        assert not len(twins((rng.random(PILOTS) < 0.05).astype(float), stored))
    related = 0.8 * values[7] + 0.6 * rng.normal(size=PILOTS)
    assert not len(twins(related, stored))


def test_fingerprints_hold_no_identifier(tmp_path: Path) -> None:
    raw = patients(120).assign(patient=[f"CANARY-{at}" for at in range(120)])
    one = Patients(load(tmp_path / "one", raw)).population
    two = Patients(load(tmp_path / "two", raw.assign(patient=range(120)))).population
    assert b"CANARY" not in one.pack
    assert one.digest == two.digest


def test_patients_who_hardly_differ_are_known_by_the_very_same_table_alone(tmp_path: Path) -> None:
    few = {"marker": lambda table: table["marker"].round(), "months": 12.0, "size": 1}
    store = open_store(str(tmp_path / "ledger.sqlite"))
    raw = patients(200).assign(**few)
    mine = Patients(load(tmp_path / "one", raw)).population
    store.append([Row("population", "", mine.digest, "{}", mine.pack)])
    renamed = raw.sample(frac=1, random_state=1).assign(patient=range(200))
    assert store.same_patients(Patients(load(tmp_path / "two", renamed)))
    other = patients(200, seed=4).assign(**few)
    assert not store.same_patients(Patients(load(tmp_path / "three", other)))

"""Ways around the ledger: another folder, another name, a deleted file, an edited line.

What an attacker wants is "supported" for a claim that was found in the same patients. The first
tests go the whole way through the command line, the others through the ledger that it uses.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from sage.cli.app import app
from sage.core.errors import InputError
from sage.settings import load as settings
from sage_screening.cohort import screen_cohort
from tests.validation.core_help import STRONG, claim, frozen_for, load, patients, validate, write
from validation import cohort as cohorts
from validation.cohort.cohort import Cohort
from validation.contracts.contract import FrozenContract, SplitRule, digest
from validation.core.hypothesis import Hypothesis
from validation.drafting.amending import amend
from validation.ledger.ledger import Ledger, LedgerState
from validation.ledger.lines import Entry
from validation.ledger.rules import ledger_objections, ledger_qualifiers
from validation.ledger.store import Row, first_chain, open_store
from validation.run.prepare import confirmation_key

runner = CliRunner()
NOISE = 40


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGE_CACHE_DIR", str(tmp_path / "cache"))


def store_path() -> Path:
    """The file of the store in force."""
    return Path(settings().ledger.place)


def book(folder: Path) -> Ledger:
    """The ledger of a folder over the store in force."""
    return Ledger(folder / "ledger.jsonl", open_store(str(store_path())))


def result(frozen: FrozenContract, p: float = 0.001, **changes: object) -> Entry:
    """The result of a contract's primary test."""
    plan = frozen.contract
    values = {"contract": frozen.sha256, "hypothesis": plan.hypothesis.id, "cohort": plan.cohort,
              "test": "primary", "role": "primary", "part": "all", "claim": True,
              "status": "ok", "p": p}  # fmt: skip
    return Entry.model_validate(values | changes)


def put(
    folder: Path,
    cohort: Cohort,
    hypothesis: Hypothesis | None = None,
    p: float | None = None,
    **options: Any,
) -> tuple[Ledger, FrozenContract]:
    """A folder's ledger after a claim was frozen on a cohort, and its result recorded if given."""
    frozen = frozen_for(cohort, hypothesis, **options)
    mine = book(folder)
    mine.register(frozen, cohort)
    if p is not None:
        mine.record(result(frozen, p))
    return mine, frozen


def variables(names: list[str]) -> str:
    return "".join(
        f'[variables.{name}]\ntable = "clinical"\ncolumn = "{name}"\nkind = "continuous"\n'
        for name in names
    )


def copied(folder: Path, raw: pd.DataFrame, *changes: tuple[str, str], more: str = "") -> Cohort:
    """A cohort of another name, with other identifiers, and changed words in its description."""
    renamed = raw.assign(patient=[f"Z{at:05d}" for at in range(len(raw))])
    text = (write(folder, renamed, more=more) / "cohort.toml").read_text(encoding="utf-8")
    for before, after in (('id = "toy"', 'id = "elsewhere"'), *changes):
        assert before in text
        text = text.replace(before, after)
    (folder / "cohort.toml").write_text(text, encoding="utf-8")
    return cohorts.load(folder)


# -- the whole way -----


def test_the_best_of_forty_screened_noise_features_is_exploratory(tmp_path: Path) -> None:
    """In the screen's own folder and in any other; in a fresh ledger it would be supported."""
    rng = np.random.default_rng(SEED)
    names = [f"noise{at}" for at in range(NOISE)]
    raw = patients(120, seed=5).assign(**{name: rng.normal(size=120) for name in names})
    cohort = write(tmp_path / "cohort", raw, more=variables(names))
    best = {
        "exposures": [{"variable": f"clinical:{BEST[0]}", "label": "best", "cut": "continuous"}],
        "comparison": "per_sd",
        "direction": BEST[1],
    }
    innocent = tmp_path / "innocent"
    innocent.mkdir()
    assert validate(innocent, cohort, **best)["verdict"]["verdict"] == "supported"
    store_path().unlink()
    store_path().with_name("ledger.sqlite.head").unlink()
    out = tmp_path / "out"
    given = ["screen", "--cohort", str(cohort), "--out", str(out), "--json"]
    screened = runner.invoke(app, given)
    top = [
        load["feature"] for load in json.loads(screened.stdout)["top"] if "noise" in load["feature"]
    ]
    assert top[0] == f"clinical:{BEST[0]}"
    found = validate(tmp_path, cohort, **best)["verdict"]
    assert (found["verdict"], found["because"]) == ("inconclusive", "registration")
    assert "screened before" in found["badge"]
    for text in (out / "ledger.jsonl").read_text().splitlines():
        assert "chain" in json.loads(text)


SEED, BEST = 11, ("noise30", "higher_risk")


def test_a_file_without_a_store_is_unverified_or_known_to_be_emptied(tmp_path: Path) -> None:
    worked(tmp_path)
    (tmp_path / "out" / "ledger.jsonl").write_text("")
    assert Ledger(tmp_path / "out" / "ledger.jsonl").state == "emptied"
    assert Ledger(tmp_path / "elsewhere" / "ledger.jsonl").state == "unverified"


def test_a_contract_edited_with_its_hash_is_exploratory_and_a_frozen_one_is_not(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path / "cohort", patients(240, log_hr=STRONG))
    (tmp_path / "h.json").write_text(claim().model_dump_json())
    given = ["validate", "contract", str(tmp_path / "h.json"), "--cohort", str(folder)]
    runner.invoke(app, [*given, "--out", str(tmp_path / "c.json")])
    frozen = FrozenContract.load(tmp_path / "c.json")
    rules = frozen.contract.rules.model_copy(update={"relevant_ratio": 1.2})
    edited = frozen.contract.model_copy(update={"rules": rules})
    forged = FrozenContract(
        contract=edited,
        data_hashes=frozen.data_hashes,
        sha256=digest(edited, frozen.data_hashes),
    ).save(tmp_path / "forged.json")
    verdicts = {}
    for path in (forged, tmp_path / "c.json"):
        out = str(tmp_path / path.stem)
        done = runner.invoke(
            app, ["validate", "run", str(path), "--cohort", str(folder), "--out", out, "--json",
                  "--no-figures"]
        )  # fmt: skip
        verdicts[path.stem] = json.loads(done.stdout)[0]["verdict"]
    assert verdicts["forged"]["because"] == "registration"
    assert "never registered" in verdicts["forged"]["badge"]
    # The true one was frozen before the forged one gave its result, and asks the same.
    assert verdicts["c"]["verdict"] == "supported"


# -- the same patients, however they are called -----


RENAMED = (
    ("[variables.marker]", "[variables.thing]"),
    ('column = "marker"', 'column = "thing"'),
    ("[endpoints.OS]", "[endpoints.SURVIVAL]"),
)
DISGUISES: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], bool]] = {
    "a logarithm": (lambda raw: raw.assign(thing=np.log(raw["marker"] + 9)), True),
    "cut at the median": (
        lambda raw: raw.assign(thing=(raw["marker"] > raw["marker"].median()) * 1), True),
    "pooled with as many others": (
        lambda raw: pd.concat([raw, patients(len(raw), seed=77)]), False),
}  # fmt: skip


@pytest.mark.parametrize("disguise", DISGUISES)
def test_a_disguised_copy_of_the_patients_is_recognized(tmp_path: Path, disguise: str) -> None:
    raw = patients(200)
    _, frozen = put(tmp_path / "one", load(tmp_path / "first", raw), p=0.001)
    change, renamed = DISGUISES[disguise]
    table = change(raw)
    copy = copied(tmp_path / "copy", table, *(RENAMED if renamed else ()))
    changes: dict[str, Any] = {"id": "new"}
    if renamed:
        exposure = {"variable": "clinical:thing", "label": "thing"}
        if table["thing"].nunique() == 2:
            exposure |= {"cut": "fixed", "threshold": 0.5}
        changes |= {"exposures": [exposure], "endpoint": "SURVIVAL"}
    other, again = put(tmp_path / "two", copy, claim(**changes), p=0.001)
    assert other.seen_before(again) == frozen.sha256
    assert {one.family for one in other.adjust()} == {2}


def months_as(change: Callable[[pd.Series], pd.Series]) -> Callable[[pd.DataFrame], pd.DataFrame]:
    return lambda raw: raw.assign(months=change(raw["months"]))


def cut_off(raw: pd.DataFrame, months: float = 18) -> pd.DataFrame:
    late = raw["months"] > months
    return raw.assign(months=raw["months"].clip(upper=months), dead=raw["dead"].where(~late, 0))


Replacement = tuple[str, str]
UNIT = 'time_unit = "months"'
DAYS = (UNIT, 'time_unit = "days"')
LONG = (UNIT, f"{UNIT}\nmax_months = 9999")
CODES = ("event_values = [1]\ncensored_values = [0]", "event_values = [2]\ncensored_values = [1]")
EXPORTS: dict[str, tuple[Callable[[pd.DataFrame], pd.DataFrame], tuple[Replacement, ...]]] = {
    "days": (months_as(lambda time: (time * 30.4375).round()), (DAYS,)),
    "completed months": (months_as(np.floor), ()),
    "days called months": (months_as(lambda time: time * 30.4375), (LONG,)),
    "cut at 36 months, in whole months": (
        lambda raw: cut_off(raw, 36).assign(months=lambda cut: np.ceil(cut["months"])), ()),
    "events coded 1 and 2": (lambda raw: raw.assign(dead=raw["dead"] + 1), (CODES,)),
    "marker in thousandths": (lambda raw: raw.assign(marker=raw["marker"] * 1000), ()),
    "half of them, cut, columns in another order": (
        lambda raw: cut_off(raw.sample(frac=0.5, random_state=1))[sorted(raw)], ()),
}  # fmt: skip


@pytest.mark.parametrize("export", EXPORTS)
def test_another_export_of_the_patients_asks_the_same_question(tmp_path: Path, export: str) -> None:
    raw = patients(240)
    _, frozen = put(tmp_path / "one", load(tmp_path / "first", raw), p=0.001)
    change, replaced = EXPORTS[export]
    table = change(raw).assign(thing=lambda found: found["marker"])
    copy = copied(tmp_path / "copy", table, *RENAMED, *replaced)
    exposure = {"variable": "clinical:thing", "label": "thing"}
    new = claim(id="new", exposures=[exposure], endpoint="SURVIVAL", direction="lower_risk")
    other, again = put(tmp_path / "two", copy, new)
    assert other.seen_before(again) == frozen.sha256


def test_another_endpoint_of_the_patients_is_another_question(tmp_path: Path) -> None:
    raw = patients(240)
    rng = np.random.default_rng(2)
    put(tmp_path / "one", load(tmp_path / "first", raw), p=0.001)
    progression = raw["months"] * rng.uniform(0.2, 1, len(raw))
    table = raw.assign(months=progression, dead=np.maximum(raw["dead"], rng.random(240) < 0.4))
    copy = copied(tmp_path / "copy", table.assign(thing=table["marker"]), *RENAMED)
    exposure = {"variable": "clinical:thing", "label": "thing"}
    new = claim(id="new", exposures=[exposure], endpoint="SURVIVAL")
    other, again = put(tmp_path / "two", copy, new)
    assert other.seen_before(again) is None
    assert {one.family for one in other.adjust()} == {1}


def test_a_ledger_of_another_version_is_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    open_store(str(path))
    with sqlite3.connect(path) as db:
        db.execute("DELETE FROM sage_ledger_meta WHERE name = 'format'")
    with pytest.raises(InputError) as refused:
        open_store(str(path))
    assert str(path) in str(refused.value) and "SAGE_LEDGER" in str(refused.value)


def test_other_patients_and_other_questions_are_not_held_against_a_claim(tmp_path: Path) -> None:
    """Runs call their hypotheses h1 and h2; only what is asked of the same patients counts."""
    first = load(tmp_path / "first", patients(200))
    one, _ = put(tmp_path / "one", first, claim(id="h1"), p=0.001)
    stage = {"variable": "clinical:stage", "label": "stage", "cut": "continuous"}
    question = claim(id="h1", exposures=[stage], comparison="per_sd")
    three, other = put(tmp_path / "three", first, question)
    assert three.seen_before(other) is None
    screen_cohort(first, "OS", ledger=one)
    strangers = load(tmp_path / "strangers", patients(200, seed=9))
    two, there = put(tmp_path / "two", strangers, p=0.001)
    assert two.seen_before(there) is None
    assert not two.find_screened(there)
    assert two.is_registered(there)
    assert two.adjust()[0].family == 1


def test_claims_on_other_patients_in_one_folder_make_no_family(tmp_path: Path) -> None:
    """Strong claims on strangers, run into the same --out, would make a weak claim's q small."""
    for seed in (1, 2):
        strangers = load(tmp_path / f"s{seed}", patients(200, seed=20 + seed))
        put(tmp_path / "out", strangers, claim(id=f"strong-{seed}"), p=0.001)
    mixed, frozen = put(tmp_path / "out", load(tmp_path / "mine", patients(200)), p=0.001)
    own = [item for item in mixed.adjust(of=frozen.sha256) if item.contract == frozen.sha256]
    assert [(item.family, item.q) for item in own] == [(1, pytest.approx(own[0].p))]
    assert {item.family for item in mixed.adjust()} == {3}


def test_the_same_contract_again_is_the_same_attempt_whatever_its_name(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(200))
    for name in ("h1", "h2", "h1"):
        named = claim(id=name, statement=f"The claim, as {name} puts it.")
        mine, frozen = put(tmp_path / f"run-{name}", cohort, named, p=0.03)
        assert mine.seen_before(frozen) is None
        assert mine.is_registered(frozen)
        assert [
            (item.q, item.family) for item in mine.adjust() if item.contract == frozen.sha256
        ] == [(pytest.approx(0.03), 1)]


def test_claims_of_all_folders_are_one_family(tmp_path: Path) -> None:
    raw = patients(200).assign(**{f"x{at}": np.random.default_rng(at).normal(size=200)
                                  for at in range(3)})  # fmt: skip
    cohort = load(tmp_path / "cohort", raw, more=variables([f"x{at}" for at in range(3)]))
    for at, p in enumerate((0.9, 0.9, 0.01)):
        asked = claim(id="h1", exposures=[{"variable": f"clinical:x{at}", "label": "x"}])
        mine, frozen = put(tmp_path / f"run{at}", cohort, asked, p=p)
    last = next(item for item in mine.adjust() if item.contract == frozen.sha256)
    assert (last.family, last.q) == (3, pytest.approx(0.03))
    alone = Ledger(tmp_path / "run2" / "ledger.jsonl")  # as a report reads it, without the store
    assert alone.adjust() == mine.adjust()
    assert [entry.contract for entry in alone.entries] == [frozen.sha256]


def test_the_confirmation_of_a_copy_cannot_be_opened_again(tmp_path: Path) -> None:
    raw = patients(200)
    rule = SplitRule(policy="discovery_confirmation")
    one, frozen = put(tmp_path / "one", load(tmp_path / "first", raw), split=rule)
    one.unlock(confirmation_key(frozen), frozen)
    copy = copied(tmp_path / "copy", raw.rename(columns={"marker": "thing"}), *RENAMED[:2])
    renamed = claim(id="new", exposures=[{"variable": "clinical:thing", "label": "thing"}])
    two, again = put(tmp_path / "two", copy, renamed, split=rule)
    with pytest.raises(InputError):
        two.require_unopened(confirmation_key(again), again)


def test_what_a_replication_showed_is_known_of_the_second_cohort(tmp_path: Path) -> None:
    first, second = load(tmp_path / "a", patients(200)), load(tmp_path / "b", patients(200, seed=9))
    frozen = frozen_for(first)
    one = book(tmp_path / "one")
    one.register(frozen, first)
    one.register_replication(frozen, second)
    one.record(result(frozen), result(frozen, part="replication", role="replication", claim=False))
    claimed = frozen_for(second, claim(id="new"))
    two = book(tmp_path / "two")
    two.register(claimed, second)
    assert two.seen_before(claimed) == frozen.sha256
    two.record(result(claimed))
    assert [item.family for item in two.adjust()] == [1]
    again = book(tmp_path / "three")
    again.register(frozen, first)
    again.register_replication(frozen, second)
    assert again.seen_before(frozen) is None
    assert again.is_registered(frozen)


# -- screened first, claimed afterwards -----


@pytest.mark.parametrize("disguise", ["as it is", "a logarithm", "derived"])
def test_what_was_screened_is_exploratory_under_any_name(tmp_path: Path, disguise: str) -> None:
    raw = patients(200)
    screen_cohort(load(tmp_path / "first", raw), "OS", ledger=book(tmp_path / "one"))
    table, changes, more, key = raw, (), "", "clinical:marker"
    if disguise == "a logarithm":
        table, changes = raw.assign(thing=np.log(raw["marker"] + 9)), RENAMED[:2]
        key = "clinical:thing"
    if disguise == "derived":
        more, key = DERIVED, "derived:sum"
    copy = copied(tmp_path / "copy", table, *changes, more=more)
    exposure = {"variable": key, "label": "thing"}
    two, frozen = put(tmp_path / "two", copy, claim(id="new", exposures=[exposure]))
    assert "OS" in two.find_screened(frozen)
    found = ledger_objections(two.state, registered=True, screened=two.find_screened(frozen))
    assert [item.because for item in found] == ["registration"]


DERIVED = """
[derived.sum]
formula = "mean_z"
of = ["clinical:marker", "clinical:stage"]
"""


def test_a_claim_that_was_frozen_before_the_screen_stays_confirmatory(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(200))
    _, frozen = put(tmp_path / "one", cohort)
    screen_cohort(cohort, "OS", ledger=book(tmp_path / "two"))
    mine = book(tmp_path / "three")
    mine.register(frozen, cohort)
    assert not mine.find_screened(frozen)
    second = amend(frozen, cohort, reason="afterwards", changes={"rules.relevant_ratio": 1.3})
    mine.register(second, cohort)
    assert mine.find_screened(second)


def test_screens_and_contracts_of_a_colleague_count_once_they_are_merged(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(200))
    theirs = open_store(str(tmp_path / "theirs.sqlite"))
    screen_cohort(cohort, "OS", ledger=Ledger(None, theirs))
    other = frozen_for(cohort, claim(id="theirs", direction="lower_risk"))
    Ledger(None, theirs).register(other, cohort)
    frozen = frozen_for(cohort)
    mine = book(tmp_path / "one")
    mine.register(frozen, cohort)
    assert not mine.find_screened(frozen)
    exported = tmp_path / "theirs.jsonl"
    exported.write_text("\n".join(theirs.export_lines()))
    done = runner.invoke(app, ["validate", "ledger", "merge", str(exported), "--json"])
    assert json.loads(done.stdout)["taken"] == {"theirs.jsonl": 2}
    mine = book(tmp_path / "one")
    mine.register(frozen, cohort)
    assert mine.find_screened(frozen)
    mine.register(other, cohort, fresh=False)
    assert mine.is_registered(other)  # a contract that was frozen elsewhere


def test_a_screen_is_on_record_before_its_first_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    cohort = load(tmp_path / "cohort", patients(200))
    monkeypatch.setattr("validation.screening.rank.screen", killed)
    with pytest.raises(KeyboardInterrupt):
        screen_cohort(cohort, "OS", ledger=book(tmp_path / "one"))
    mine, frozen = put(tmp_path / "two", cohort)
    assert mine.find_screened(frozen)


# -- registered when it was frozen -----


def test_a_contract_registered_after_its_results_is_exploratory(tmp_path: Path) -> None:
    cohort = load(tmp_path / "cohort", patients(200))
    frozen = frozen_for(cohort)
    mine = book(tmp_path / "one")
    mine.register(frozen, cohort, fresh=False)  # read from a file, never frozen here
    assert not mine.is_registered(frozen)
    mine.record(result(frozen))
    mine.register(frozen, cohort)  # frozen now, to look as if
    assert not mine.is_registered(frozen)
    assert not book(tmp_path / "one").is_registered(frozen)


def test_a_merge_that_fails_leaves_no_empty_ledger(tmp_path: Path) -> None:
    source = tmp_path / "theirs.jsonl"
    for lines in (None, "no row\n"):
        if lines is not None:
            source.write_text(lines)
        done = runner.invoke(app, ["validate", "ledger", "merge", str(source)])
        assert isinstance(done.exception, InputError)
        assert not store_path().exists()


@pytest.mark.parametrize("place", ["postgres//ann:hunter2@db/sage", "folder/legder.sqlite"])
def test_a_mistyped_ledger_is_named_not_made_and_its_password_is_not_shown(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAGE_LEDGER", place)
    for command in ("show", "verify", "export out.jsonl"):
        done = runner.invoke(app, ["validate", "ledger", *command.split()])
        assert isinstance(done.exception, InputError)
        named = "legder.sqlite" if "sqlite" in place else "SAGE_LEDGER"
        assert named in str(done.exception)
        assert "hunter2" not in str(done.exception) + done.output
    assert not any(tmp_path.iterdir())


# -- emptied, edited, exchanged -----


def worked(tmp_path: Path) -> tuple[Cohort, FrozenContract]:
    """A folder with a registered contract, its result, and results.json."""
    cohort = load(tmp_path / "cohort", patients(200))
    _, frozen = put(tmp_path / "out", cohort, p=0.001)
    home = tmp_path / "out" / "marker-os"
    home.mkdir()
    (home / "results.json").write_text(json.dumps({"contract_sha256": frozen.sha256}))
    assert book(tmp_path / "out").state == "intact"
    return cohort, frozen


def sql(*statements: str) -> None:
    with sqlite3.connect(store_path()) as db:
        for statement in statements:
            db.execute(statement)
    db.close()


def head_path() -> Path:
    """What the store remembers of its last row."""
    return store_path().with_name("ledger.sqlite.head")


EMPTY = ("DELETE FROM sage_ledger", "DELETE FROM sage_ledger_tokens")
EDIT = "UPDATE sage_ledger SET body = replace(body, '0.001', '0.9') WHERE kind = 'entry'"


def chain_anew(_: Path) -> None:
    """Take the result out and make the chain whole again, as one who knows how would."""
    store = open_store(str(store_path()))
    rows = [row for row in store.all_rows() if row.kind != "entry"]
    data = {row.seq: store.data(row) if row.data_sha256 else None for row in rows}
    sql("DELETE FROM sage_ledger")
    chain = first_chain(store.id)
    with sqlite3.connect(store_path()) as db:
        for seq, row in enumerate(rows, start=1):
            new = Row(row.kind, row.contract, row.population, row.body, data[row.seq], "", seq,
                      row.at)  # fmt: skip
            chain = new.chain_hash(chain)
            db.execute(
                "INSERT INTO sage_ledger VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (seq, new.at, new.kind, new.contract, new.population, new.body, new.data,
                 new.digest, "", new.content, chain),
            )  # fmt: skip
    db.close()
    assert open_store(str(store_path())).problems() == []


ATTACKS: dict[str, tuple[Callable[[Path], object], LedgerState]] = {
    "remove the store": (lambda _: store_path().unlink(), "missing"),
    "and its head": (lambda _: [store_path().unlink(), head_path().unlink()], "missing"),
    "empty the store": (lambda _: sql(*EMPTY), "emptied"),
    "and remove its head": (lambda _: [sql(*EMPTY), head_path().unlink()], "emptied"),
    "edit a row": (lambda _: sql(EDIT), "edited"),
    "chain anew": (chain_anew, "emptied"),
    "empty the file": (lambda out: (out / "ledger.jsonl").write_text(""), "emptied"),
    "remove the file": (lambda out: (out / "ledger.jsonl").unlink(), "emptied"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_tampered_ledger_is_said_and_supports_nothing(tmp_path: Path, attack: str) -> None:
    cohort, frozen = worked(tmp_path)
    tamper, state = ATTACKS[attack]
    tamper(tmp_path / "out")
    mine = book(tmp_path / "out")
    assert mine.state == state
    mine.register(frozen, cohort)
    mine.record(result(frozen))
    for again in (mine, book(tmp_path / "out")):  # It does not heal by going on.
        assert again.state == state
        assert ledger_qualifiers(again.state, 0.05) == (f"ledger {state}",)
        assert ledger_qualifiers(again.state, 0.2)[-1] == "alpha 0.2"
        found = ledger_objections(again.state, registered=True)
        assert [item.because for item in found] == ["registration"]
    done = runner.invoke(app, ["validate", "ledger", "verify", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 1
    assert json.loads(done.stdout)["problems"]


def test_a_restored_backup_makes_a_deleted_store_whole_again(tmp_path: Path) -> None:
    cohort, frozen = worked(tmp_path)
    shutil.move(tmp_path / "out", tmp_path / "moved")
    out, backup = tmp_path / "moved", tmp_path / "backup.jsonl"
    assert book(out).state == "intact"  # a moved folder, too
    assert runner.invoke(app, ["validate", "ledger", "export", str(backup)]).exit_code == 0
    store_path().unlink()
    assert book(out).state == "missing"
    assert runner.invoke(app, ["validate", "ledger", "merge", str(backup)]).exit_code == 0
    mine = book(out)
    assert mine.state == "intact"
    mine.register(frozen, cohort)
    assert mine.is_registered(frozen)
    assert mine.seen_before(frozen) is None
    assert runner.invoke(app, ["validate", "ledger", "verify", str(out)]).exit_code == 0


def test_a_missing_index_of_patients_is_found_by_verify(tmp_path: Path) -> None:
    worked(tmp_path)
    sql("DELETE FROM sage_ledger_tokens")
    done = runner.invoke(app, ["validate", "ledger", "verify"])
    assert done.exit_code == 1
    assert "index" in done.stdout


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda lines: [lines[0], lines[1].replace("0.001", "0.900")], "line 2"),
        (lambda lines: [lines[1], lines[0]], "line 1"),
        (lambda lines: [lines[0], "\x00\xff", lines[1]], "line 2"),
    ],
)
def test_an_edited_line_is_refused_by_file_and_line(
    tmp_path: Path, change: Callable[[list[str]], list[str]], line: str
) -> None:
    worked(tmp_path)
    path = tmp_path / "out" / "ledger.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(change(lines)) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=line) as found:
        book(tmp_path / "out")
    assert str(path) in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("cut", [1, 200])
def test_a_torn_last_line_repairs_itself_and_says_so(tmp_path: Path, cut: int) -> None:
    cohort, frozen = worked(tmp_path)
    path = tmp_path / "out" / "ledger.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-cut])
    mine = book(tmp_path / "out")
    assert "line 2" in mine.notes[0]
    assert mine.state == "intact"
    mine.register(frozen, cohort)  # what was acknowledged lies in the store
    again = book(tmp_path / "out")
    assert [entry.p for entry in again.entries] == [0.001]
    assert "line 2" in again.notes[0]
    assert again.state == "intact"


def test_a_simulated_label_does_not_hide_real_patients(tmp_path: Path) -> None:
    raw = patients(200)
    folder = write(tmp_path / "first", raw)
    text = (folder / "cohort.toml").read_text(encoding="utf-8")
    (folder / "cohort.toml").write_text("simulated = true\n" + text, encoding="utf-8")
    screen_cohort(cohorts.load(folder), "OS", ledger=book(tmp_path / "one"))
    mine, frozen = put(tmp_path / "two", load(tmp_path / "real", raw))
    assert mine.find_screened(frozen)


# -- what a person sees -----


def test_show_names_claims_on_a_copy_of_the_patients(tmp_path: Path) -> None:
    worked(tmp_path)
    copied(tmp_path / "copy", patients(200))
    write(tmp_path / "strangers", patients(200, seed=9))
    for options, count in (([], 1), (["copy"], 1), (["strangers"], 0)):
        given = [word for name in options for word in ("--cohort", str(tmp_path / name))]
        done = runner.invoke(app, ["validate", "ledger", "show", "--json", *given])
        found = json.loads(done.stdout)
        assert (found["state"], found["contracts"]) == ("intact", count)
        assert [item["name"] for item in found["latest"]] == ["marker-os"] * count


def test_config_names_the_store_and_hides_a_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAGE_LEDGER", "postgresql://sage:hunter2@db.example.org/ledger")
    shown = runner.invoke(app, ["admin", "config", "--json"]).stdout
    assert "postgresql://db.example.org/ledger" in shown
    assert "hunter2" not in shown

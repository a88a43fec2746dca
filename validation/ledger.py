"""The error ledger: every attempted test on the same patients, crashed ones and screens too.

Error rates are controlled over the ledger, not per hypothesis: each hypothesis' primary test is
one claim, and whoever tries more hypotheses pays for them. A test that crashed or was refused
counts as an attempt with p = 1. Contracts are registered when they are frozen, so that the ledger
tells which claims were written after results were seen.

What is known follows the patients: it lies in a store (`validation.store`) and is found by
fingerprints of their records, whatever the folder, the cohort's name or the identifiers. A folder's
`ledger.jsonl` is its projection: all that its verdicts rest on, so that they can be read without
the store. Each line holds the hash of the one before it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pydantic import ValidationError

from sage.core.errors import InputError
from sage.core.models import Strict
from validation.contracts.contract import FrozenContract
from validation.results import TestOutcome
from validation.store import Kind, Mark, Row, Store
from validation.types import canonical_json, sha256_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from validation.cohort.cohort import Cohort
    from validation.patients import Match, Patients, Population

LedgerState = Literal["intact", "emptied", "edited", "missing", "unverified"]
"""`unverified`: the ledger knows one folder alone, since no store was given."""
FIRST = sha256_text("sage ledger.jsonl")
FILE = "ledger.jsonl"
PROSE = {"id", "statement", "rationale", "feasibility", "untested", "notes", "amendment"}
"""Fields of a hypothesis or contract that change nothing of what is done."""


class Entry(Strict):
    """One attempt. `claim` entries form the family over which errors are controlled.

    `draw` names the split of the patients (data, seed, share) where the contract has one.
    """

    contract: str
    hypothesis: str
    cohort: str
    test: str
    role: str
    part: str
    claim: bool
    status: str
    p: float | None = None
    n: int | None = None
    code: str = ""
    reason: str = ""
    draw: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """The same test of the same contract on the same part is one attempt, however often run."""
        return (self.contract, self.test, self.part)


class Registration(Strict):
    """A contract that was frozen when the ledger held what stands above it.

    `claim` names what is done, whatever the hypothesis is called: contracts with the same one are
    the same attempt. `asks` names the question among those on these patients, `also` what it was
    called elsewhere. `screened` says which exposures were screened before. `frozen` is False for a
    contract that was first met when it was run.
    """

    registered: str
    hypothesis: str
    cohort: str
    endpoint: str
    exposures: tuple[str, ...]
    parent: str | None = None
    claim: str = ""
    population: str = ""
    asks: str = ""
    also: tuple[str, ...] = ()
    screened: tuple[str, ...] = ()
    frozen: bool = True

    @property
    def contract(self) -> str:
        """The contract's hash."""
        return self.registered

    @property
    def question(self) -> tuple[str, ...]:
        """What is asked of which patients: contracts that differ otherwise ask it again."""
        return (self.asks,) if self.asks else (self.cohort, self.endpoint, *self.exposures)


class Unlock(Strict):
    """The confirmation patients of a cohort were opened for one contract."""

    unlock: str
    contract: str
    hypothesis: str
    cohort: str = ""


class Screened(Strict):
    """Features of these patients were ranked by an endpoint."""

    screen: str
    cohort: str
    endpoint: str
    features: int
    population: str = ""
    contract: str = ""


class Incident(Strict):
    """Something that happened to this file, and stays said."""

    incident: Literal["emptied", "torn"]
    why: str
    contract: str = ""


Said = Entry | Registration | Unlock | Screened | Incident
S = TypeVar("S", Entry, Registration, Unlock, Screened, Incident)
KINDS: dict[type[Strict], Kind] = {
    Entry: "entry",
    Registration: "registration",
    Unlock: "unlock",
    Screened: "screen",
}
FIELDS: dict[str, type[Said]] = {
    "registered": Registration,
    "unlock": Unlock,
    "screen": Screened,
    "incident": Incident,
    "test": Entry,
}


class Adjusted(Strict):
    """A claim after error control over all claims of its role."""

    contract: str
    hypothesis: str
    test: str
    part: str
    p: float
    q: float
    e: float
    e_bh: bool
    family: int


@dataclass(frozen=True)
class Line:
    """One line of the file. `elsewhere`: said in another folder, on the same patients."""

    said: Said
    at: str
    elsewhere: bool
    mark: Mark | None = None
    number: int = 0

    @property
    def order(self) -> tuple[str, int]:
        """Sorts what came first to the front."""
        return (self.at, self.number)


class Ledger:
    """An append-only file of attempts (`ledger.jsonl`), flushed to disk at each line.

    Parameters
    ----------
    path : the folder's file; None where only the store is written
    store : where what is known of the same patients in other folders lies

    Raises
    ------
    InputError
        If a line was edited, removed or exchanged; the message names it. A last line that an
        interruption tore is dropped, and `notes` says so.
    """

    def __init__(self, path: Path | None, store: Store | None = None) -> None:
        self.path = path
        self.store = store
        self.lines: list[Line] = []
        self._texts: dict[str, bool] = {}
        self._registrations: dict[str, Registration] = {}
        self._second: dict[str, str] = {}
        self._chain, self._size = FIRST, 0
        self._pending: list[Incident] = []
        self._patients: dict[int, tuple[Cohort, Patients]] = {}
        self._read()
        self._emptied = self._lacks_results()

    # -- what it holds -----

    def _all(self, kind: type[S], *, own: bool = False) -> list[S]:
        return [
            one.said
            for one in self.lines
            if isinstance(one.said, kind) and not (own and one.elsewhere)
        ]

    @property
    def entries(self) -> list[Entry]:
        """The attempts of this folder."""
        return self._all(Entry, own=True)

    @property
    def unlocks(self) -> list[Unlock]:
        """The openings of confirmation patients in this folder."""
        return self._all(Unlock, own=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """What happened to the file, in words."""
        return tuple(one.why for one in (*self._all(Incident), *self._pending))

    @property
    def state(self) -> LedgerState:
        """Whether what was registered is still there."""
        if self._emptied or any(one.incident == "emptied" for one in self._all(Incident)):
            return "emptied"
        if self.store is None:
            return "unverified"
        if self.store.problem():
            return "edited"
        marks = [one.mark for one in self.lines] + [self.store.remembered()]
        lost = self.store.lacks(one for one in marks if one is not None)
        if lost is None:
            return "intact"
        return "emptied" if lost.store == self.store.id else "missing"

    def _lacks_results(self) -> bool:
        """Results lie in the folder whose contract this file does not know: lines were removed.

        A contract is registered before anything is written for it, so no interruption does this.
        """
        if self.path is None or self.path.name != FILE:
            return False
        known = {one.registered for one in self._all(Registration)}
        for pattern in ("*/results.json", "hypotheses/*/results/results.json"):
            for path in sorted(self.path.parent.glob(pattern)):
                try:
                    contract = json.loads(path.read_text(encoding="utf-8"))["contract_sha256"]
                except (OSError, ValueError, KeyError, TypeError):
                    continue
                if contract not in known:
                    why = (
                        f"{self.path.name} was emptied or removed: it does not know the contract "
                        f"of {path.relative_to(self.path.parent)}"
                    )
                    if not any(one.incident == "emptied" for one in self._all(Incident)):
                        self._pending.append(Incident(incident="emptied", why=why))
                    return True
        return False

    # -- registering -----

    def register(
        self, frozen: FrozenContract, cohort: Cohort | None = None, *, fresh: bool = True
    ) -> Registration:
        """Note that a contract is frozen now, before any result that follows; once.

        Parameters
        ----------
        frozen : the contract
        cohort : its cohort, by whose records the store finds what is known of the same patients
        fresh : False for a contract that is read from a file: unless it stands here already, it
            was never registered when it was frozen
        """
        contract = frozen.contract
        own = [one for one in self._all(Registration, own=True) if one.registered == frozen.sha256]
        if own and (self.store is None or cohort is None):
            return own[0]
        mine = Registration(
            registered=frozen.sha256,
            hypothesis=contract.hypothesis.id,
            cohort=contract.cohort,
            endpoint=contract.primary_test.endpoint,
            exposures=tuple(sorted({one.key for one in contract.exposures})),
            parent=contract.parent,
            claim=claim_of(frozen),
            frozen=fresh,
        )
        if self.store is None or cohort is None:
            self._add([mine])
            return mine
        patients, related = self._related(cohort)
        data = patients_data(patients, mine.exposures)
        earlier = [
            row
            for row in self.store.of_contract([frozen.sha256])
            if row.kind == "registration" and row.population in related
        ]
        if earlier:
            mine = Registration.model_validate_json(earlier[0].body)
            screened = self._screened(cohort, patients, related, mine, before=earlier[0].at)
            more = tuple(sorted({*mine.screened, *screened}))
            kept = [Registration.model_validate_json(row.body) for row in earlier]
            same = [one for one in kept if set(one.screened) >= set(more)]
            mine = same[0] if same else mine.model_copy(update={"screened": more})
            if fresh and not any(one.frozen for one in kept):
                mine = mine.model_copy(update={"frozen": True})
        else:
            labels = self._asked_before(patients, related, mine)
            digest = patients.population.digest
            mine = mine.model_copy(
                update={
                    "population": digest,
                    "asks": labels[0] if labels else self._label(digest, mine),
                    "also": tuple(labels[1:]),
                    "screened": self._screened(cohort, patients, related, mine),
                }
            )
        self._add([mine], data)
        self.follow(cohort)
        return mine

    def register_replication(self, frozen: FrozenContract, cohort: Cohort) -> None:
        """Note that a registered contract is about to be repeated in a second cohort's patients.

        What comes of it was seen there: a claim of their own that asks the same is exploratory.
        """
        mine = self.registration(frozen.sha256)
        if self.store is None or mine is None:
            return
        patients, related = self._related(cohort)
        digest = patients.population.digest
        labels = self._asked_before(patients, related, mine)
        said = mine.model_copy(
            update={
                "cohort": cohort.id,
                "population": digest,
                "asks": labels[0] if labels else self._label(digest, mine),
                "also": tuple(labels[1:]),
                "screened": (),
            }
        )
        self._second[frozen.sha256] = digest
        self._add([said], patients_data(patients, mine.exposures))

    @staticmethod
    def _label(population: str, mine: Registration) -> str:
        """The name of a question that nobody asked these patients before."""
        return sha256_text(canonical_json([population, mine.endpoint, mine.exposures]))[:16]

    def follow(self, cohort: Cohort) -> None:
        """Take over what the store knows of these patients from other folders."""
        if self.store is None:
            return
        _, related = self._related(cohort)
        own = {one.registered for one in self._all(Registration, own=True)}
        there = {one.key for one in self.entries}
        lines: list[Line] = []
        for row in self.store.rows(related, ("registration", "entry", "unlock", "screen")):
            said = _model(json.loads(row.body))
            mine = said.contract in own
            if isinstance(said, Entry) and (
                said.key in there
                if mine
                else not (said.claim or said.role in ("primary", "replication"))
            ):
                continue
            lines.append(self._line(said, row, elsewhere=not mine))
        self._write(lines)

    def follow_all(self) -> None:
        """Take over all that the store knows, of whatever patients."""
        if self.store is not None:
            rows = [row for row in self.store.all_rows() if row.kind in KINDS.values()]
            self._write(self._line(_model(json.loads(row.body)), row, True) for row in rows)

    def screen(self, cohort: Cohort, endpoint: str, names: Sequence[str], ranks: Any) -> None:
        """Note that features are about to be ranked by an endpoint in these patients.

        Parameters
        ----------
        names : the features
        ranks : (features, pilots) their ranks, from `validation.patients.profiles`
        """
        from validation.patients import pack_features

        data = pack_features(names, ranks)
        what = sha256_text(canonical_json([endpoint, sorted(names)]))[:16]
        said = Screened(screen=what, cohort=cohort.id, endpoint=endpoint, features=len(names))
        if self.store is not None:
            patients, _ = self._related(cohort)
            said = said.model_copy(update={"population": patients.population.digest})
        self._add([said], data)

    def patients(self, cohort: Cohort) -> Patients:
        """A cohort's patients with their fingerprints, made once."""
        from validation.patients import Patients

        known = self._patients.get(id(cohort))
        if known is None:
            known = self._patients[id(cohort)] = (cohort, Patients(cohort))
        return known[1]

    def _related(self, cohort: Cohort) -> tuple[Patients, Mapping[str, tuple[Population, Match]]]:
        """A cohort's patients, and the stored populations that share some with it."""
        assert self.store is not None
        patients = self.patients(cohort)
        mine = patients.population
        row = Row("population", "", mine.digest, canonical_json(mine.digest), mine.packed)
        self.store.append([row])
        return patients, self.store.same_patients(patients)

    def _asked_before(
        self,
        patients: Patients,
        related: Mapping[str, tuple[Population, Match]],
        mine: Registration,
    ) -> list[str]:
        """What the same question is called, the earliest name first."""
        assert self.store is not None
        labels = []
        for row in self.store.rows(related, ("registration",)):
            other = Registration.model_validate_json(row.body)
            population, match = related[row.population]
            same = other.endpoint == mine.endpoint or patients.same_outcome(
                mine.endpoint, population, other.endpoint, match
            )
            if not same or len(other.exposures) != len(mine.exposures):
                continue
            if other.exposures != mine.exposures:
                from validation.patients import unpack

                header, ranks = unpack(self.store.data(row))
                found = [set(patients.twins(key, ranks, match)) for key in mine.exposures]
                if not all(found) or set.union(*found) != set(range(len(header["names"]))):
                    continue
            labels += [other.asks, *other.also]
        return list(dict.fromkeys(one for one in labels if one))

    def _screened(
        self,
        cohort: Cohort,
        patients: Patients,
        related: Mapping[str, tuple[Population, Match]],
        mine: Registration,
        before: str = "",
    ) -> tuple[str, ...]:
        """Which exposures were screened in these patients before the contract was registered."""
        from validation.patients import unpack

        assert self.store is not None
        keys = list(mine.exposures)
        for key in mine.exposures:
            if key in cohort.derived:
                keys += cohort.derived[key].of
        found = {}
        for row in self.store.rows(related, ("screen",)):
            said = Screened.model_validate_json(row.body)
            population, match = related[row.population]
            same = said.endpoint == mine.endpoint or patients.same_outcome(
                mine.endpoint, population, said.endpoint, match
            )
            if not same or (before and row.at >= before):
                continue
            header, ranks = unpack(self.store.data(row))
            names = header["names"]
            for key in keys:
                as_name = key if key in names else ""
                if not as_name:
                    twins = patients.twins(key, ranks, match)
                    as_name = names[int(twins[0])] if len(twins) else ""
                if as_name:
                    other = "" if as_name == key else f" (as {as_name})"
                    found[key] = f"{key}{other} was screened against {said.endpoint} before"
        return tuple(found[key] for key in keys if key in found)

    # -- attempts -----

    def record(self, *entries: Entry) -> None:
        """Append attempts; repeating an identical one adds nothing."""
        self._add(entries)

    def registration(self, contract: str) -> Registration | None:
        """How a contract was registered: by being frozen, where it ever was."""
        return self._registrations.get(contract)

    def is_registered(self, frozen: FrozenContract) -> bool:
        """Whether the contract was registered when it was frozen, before any result of it.

        A ledger without a store asks this only of what it knows to have come from a file.
        """
        mine = self.registration(frozen.sha256)
        if mine is None:
            return self.store is None
        claim = self._claim(frozen.sha256)
        registered = [
            one.order
            for one in self.lines
            if isinstance(one.said, Registration)
            and one.said.frozen
            and self._claim(one.said.registered) == claim
        ]
        results = [
            one.order
            for one in self.lines
            if isinstance(one.said, Entry)
            and one.said.contract == frozen.sha256
            and one.said.p is not None
        ]
        return bool(registered) and (not results or min(registered) < min(results))

    def screened(self, frozen: FrozenContract) -> str:
        """Which exposure was screened in these patients before; empty where none was."""
        mine = self.registration(frozen.sha256)
        return "; ".join(mine.screened) if mine is not None else ""

    def _claim(self, contract: str) -> str:
        """What a contract does: contracts that do the same are one attempt."""
        found = self.registration(contract)
        return found.claim if found is not None and found.claim else contract

    def _question(self, one: Entry | Unlock) -> tuple[str, ...]:
        found = self.registration(one.contract)
        return found.question if found is not None else (one.cohort, one.hypothesis)

    def _asks_the_same(self, line: Line, frozen: FrozenContract) -> bool:
        """Another contract on the same claim, its own earlier version, or, in this folder, one of
        the same name.
        """
        one = line.said
        if self._claim(one.contract) == self._claim(frozen.sha256):
            return False
        mine, theirs = self.registration(frozen.sha256), self.registration(one.contract)
        if one.contract in self._ancestors(frozen):
            return True
        if mine is not None and theirs is not None and mine.asks and theirs.asks:
            asked = [{each.asks, *each.also} for each in (mine, theirs)]
            if asked[0] & asked[1]:
                return True
        assert isinstance(one, Entry | Unlock)
        if line.elsewhere or one.cohort not in ("", frozen.contract.cohort):
            return False
        named = one.hypothesis == frozen.contract.hypothesis.id
        return named or (mine is not None and self._question(one) == mine.question)

    def _ancestors(self, frozen: FrozenContract) -> set[str]:
        found: set[str] = set()
        parent = frozen.contract.parent
        while parent is not None and parent not in found:
            found.add(parent)
            known = self.registration(parent)
            parent = known.parent if known is not None else None
        return found

    def require_unopened(self, key: str, frozen: FrozenContract) -> None:
        """Check that no other contract on this claim has opened the confirmation patients.

        Raises
        ------
        InputError
            If another one did: another version, seed or share, or the claim under another name.
        """
        for line in self.lines:
            one = line.said
            if not isinstance(one, Unlock) or not self._asks_the_same(line, frozen):
                continue
            if one.unlock == key or one.cohort:
                raise InputError(
                    f'the confirmation patients of cohort "{frozen.contract.cohort}" were '
                    f'already opened for hypothesis "{one.hypothesis}" under contract '
                    f"{one.contract[:12]}; another version, seed or share of it cannot be "
                    "confirmed in the same data. Repeat the call as it was, or confirm the "
                    "hypothesis in a second cohort (--replicate)"
                )

    def unlock(self, key: str, frozen: FrozenContract) -> None:
        """Open the confirmation patients for one contract of a hypothesis, once.

        Raises
        ------
        InputError
            If they were opened before for another contract of that hypothesis.
        """
        self.require_unopened(key, frozen)
        mine = Unlock(
            unlock=key,
            contract=frozen.sha256,
            hypothesis=frozen.contract.hypothesis.id,
            cohort=frozen.contract.cohort,
        )
        if mine not in self.unlocks:
            self._add([mine])

    def is_unlocked(self, key: str, contract: str) -> bool:
        """True when `contract` may read the confirmation patients."""
        return any(one.unlock == key and one.contract == contract for one in self.unlocks)

    def seen_before(self, frozen: FrozenContract) -> str | None:
        """Another contract on the same claim whose results came before this one was registered.

        Results of a discovery part do not count where this contract holds back the same patients:
        those were not seen.

        Returns
        -------
        Its hash, or None where no other gave a result before.
        """
        draw = draw_of(frozen)
        claim = self._claim(frozen.sha256)
        own = [
            one.order
            for one in self.lines
            if isinstance(one.said, Entry | Registration)
            and self._claim(one.said.contract) == claim
        ]
        for line in sorted(self.lines, key=lambda one: one.order):
            one = line.said
            if not isinstance(one, Entry) or (own and line.order > min(own)):
                continue
            unseen = one.part == "discovery" and draw != "" and one.draw == draw
            known = one.status == "ok" and one.p is not None
            if known and not unseen and self._asks_the_same(line, frozen):
                return one.contract
        return None

    def claims(self, role: str = "primary") -> list[Entry]:
        """The claims of a role on these patients, each attempt once, the latest state of it."""
        found: dict[tuple[str, str, str], Entry] = {}
        for entry in self._all(Entry):
            if entry.claim and entry.role == role:
                found[entry.key] = entry
        return list(found.values())

    def adjust(self, role: str = "primary", alpha: float = 0.05) -> list[Adjusted]:
        """Benjamini-Hochberg q-values and e-BH over all claims of a role.

        The family holds each question once. Contracts that ask it again (another version, seed or
        cut) pay by Bonferroni among themselves, so that repeating a strong claim gains no other one
        a smaller q. A hypothesis that was tested on disjoint patients (discovery, confirmation,
        replication) brings the product of its e-values; q-values use each claim's own p.
        """
        from validation.statistics.multiplicity import bh, e_bh, p_to_e

        claims = self.claims(role)
        if not claims:
            return []
        disjoint = self._disjoint()
        questions = [self._question(one) for one in claims]
        named = [self._claim(one.contract) for one in claims]
        family = {one: at for at, one in enumerate(dict.fromkeys(questions))}
        asked: list[set[str]] = [set() for _ in family]
        for claim, question in zip(named, questions, strict=True):
            asked[family[question]].add(claim)
        p, e = [], []
        for one, question in zip(claims, questions, strict=True):
            known = one.p is not None and one.status == "ok"
            raw = max(one.p, 1e-300) if one.p is not None and known else 1.0
            p.append(min(1.0, raw * len(asked[family[question]])))
            factor = disjoint.get(one.key[:2], 1.0)
            e.append(float(p_to_e([raw])[0]) * factor if known else 0.0)
        best, mean_e = [1.0] * len(family), [0.0] * len(family)
        for at, question in enumerate(questions):
            place = family[question]
            best[place] = min(best[place], p[at])
            mean_e[place] += e[at] / questions.count(question)
        kept = e_bh(mean_e, alpha)

        def q_of(at: int) -> float:
            place = family[questions[at]]
            return float(bh([*best[:place], p[at], *best[place + 1 :]])[place])

        return [
            Adjusted(
                contract=one.contract,
                hypothesis=one.hypothesis,
                test=one.test,
                part=one.part,
                p=1.0 if one.p is None or one.status != "ok" else max(one.p, 1e-300),
                q=q_of(at),
                e=e[at],
                e_bh=bool(kept[family[questions[at]]]),
                family=len(set(named)),
            )
            for at, one in enumerate(claims)
        ]

    def _disjoint(self) -> dict[tuple[str, str], float]:
        """Product of the e-values of a claim's test on other patients than the claim's own."""
        from validation.statistics.multiplicity import p_to_e

        found: dict[tuple[str, str], float] = {}
        for one in {entry.key: entry for entry in self._all(Entry)}.values():
            other = one.part in ("discovery", "replication") and not one.claim
            if other and one.status == "ok" and one.p is not None:
                value = float(p_to_e([max(one.p, 1e-300)])[0])
                found[one.key[:2]] = found.get(one.key[:2], 1.0) * value
        return found

    def counts(self) -> dict[str, int]:
        """How many attempts of this folder, by how they ended."""
        found: dict[str, int] = {"attempts": len({one.key for one in self.entries})}
        for one in {entry.key: entry for entry in self.entries}.values():
            found[one.status] = found.get(one.status, 0) + 1
        return found

    # -- the file -----

    def _add(self, said: Sequence[Said], data: bytes | None = None) -> None:
        """Write to the store, then to the file: what stands here is kept there."""
        if not said:
            return
        if self.store is None:
            self._write(Line(one, "", False) for one in said)
            return
        rows = [
            Row(KINDS[type(one)], one.contract, self._population(one), _text(one), data)
            for one in said
        ]
        kept = self.store.append(rows)
        self._write(self._line(one, row) for one, row in zip(said, kept, strict=True))

    def _line(self, said: Said, row: Row, elsewhere: bool = False) -> Line:
        assert self.store is not None
        mark = Mark(store=self.store.id, seq=row.seq, chain=row.chain)
        return Line(said, row.at, elsewhere, mark)

    def _population(self, one: Said) -> str:
        if isinstance(one, Registration | Screened):
            return one.population
        if isinstance(one, Entry) and one.part == "replication":
            return self._second.get(one.contract, "")
        found = self.registration(one.contract)
        return found.population if found is not None else ""

    def _write(self, lines: Iterable[Line]) -> None:
        new = [line for line in lines if self._is_new(line)]
        if self.path is None:
            for line in new:
                self._keep(line)
        elif new or self._pending:
            with self._appending() as handle:
                pending = [Line(one, "", False) for one in self._pending]
                self._pending = []
                for line in (*pending, *new):
                    if self._is_new(line):
                        self._put(handle, line)

    def _is_new(self, line: Line) -> bool:
        """Whether it is not said here: what was said elsewhere may yet be said in this folder."""
        known = self._texts.get(_text(line.said))
        return known is None or (known and not line.elsewhere)

    @contextmanager
    def _appending(self) -> Iterator[Any]:
        """The file, open for this process alone and read up to its end."""
        import fcntl

        assert self.path is not None
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as handle:
            fcntl.flock(handle, fcntl.LOCK_EX)
            handle.seek(self._size)
            self._take(handle.read())
            handle.truncate(self._size)
            handle.seek(self._size)
            yield handle
            handle.flush()
            os.fsync(handle.fileno())

    def _put(self, handle: Any, line: Line) -> None:
        value: dict[str, Any] = line.said.model_dump(mode="json")
        if line.at:
            value["at"] = line.at
        if line.mark is not None:
            value["mark"] = line.mark.model_dump(mode="json")
        if line.elsewhere:
            value["elsewhere"] = True
        self._chain = sha256_text(self._chain + canonical_json(value))
        value["chain"] = self._chain
        text = (json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n").encode()
        handle.write(text)
        self._size += len(text)
        self._keep(line)

    def _keep(self, line: Line) -> None:
        said, text = line.said, _text(line.said)
        self._texts[text] = line.elsewhere and self._texts.get(text, True)
        if isinstance(said, Registration):
            kept, known = said, self._registrations.get(said.registered)
            if known is not None:
                screened = tuple(sorted({*known.screened, *said.screened}))
                frozen = known.frozen or said.frozen
                also = tuple(sorted({*known.also, *said.also, said.asks} - {known.asks, ""}))
                kept = known.model_copy(
                    update={"screened": screened, "frozen": frozen, "also": also}
                )
            self._registrations[said.registered] = kept
        self.lines.append(replace(line, number=len(self.lines)))

    def _read(self) -> None:
        if self.path is not None and self.path.is_file():
            self._take(self.path.read_bytes())

    def _take(self, block: bytes) -> None:
        """Read lines that are new here; what an interruption left of a last line is dropped."""
        whole, newline, torn = block.rpartition(b"\n")
        for text in whole.split(b"\n") if newline else []:
            self._take_line(text)
            self._size += len(text) + 1
        if torn:
            self._pending.append(
                Incident(
                    incident="torn",
                    why=f"an interruption tore line {len(self.lines) + 1} of {FILE}; it was "
                    "dropped, and what it said is written again",
                )
            )

    def _take_line(self, text: bytes) -> None:
        where = f"{self.path}: line {len(self.lines) + 1}"
        try:
            line = json.loads(text.decode("utf-8"))
            chain, at = line.pop("chain", None), line.get("at", "")
            expected = sha256_text(self._chain + canonical_json(line))
            elsewhere, mark = bool(line.get("elsewhere")), line.get("mark")
            body = {key: line[key] for key in line if key not in ("at", "mark", "elsewhere")}
            said = _model(body)
            known = None if mark is None else Mark.model_validate(mark)
        except (ValueError, ValidationError, AttributeError, TypeError):
            raise InputError(
                f"{where} is not a ledger entry; a ledger must not be edited. Restore it or start "
                "a new one"
            ) from None
        if chain is None:
            raise InputError(
                f"{where} has no hash: it was edited, or an earlier version of SAGE wrote it. Give "
                "the run a folder of its own"
            )
        if chain != expected:
            raise InputError(
                f"{where} was edited, or a line before it was removed; a ledger must not be "
                "edited. Restore it, or give the run a folder of its own"
            )
        self._chain = chain
        self._keep(Line(said, at, elsewhere, known))


def _model(body: dict[str, Any]) -> Said:
    kind = next((model for field, model in FIELDS.items() if field in body), Entry)
    return kind.model_validate(body)


def _text(said: Said) -> str:
    return canonical_json(said.model_dump(mode="json"))


def patients_data(patients: Patients, exposures: Sequence[str]) -> bytes:
    """The exposures of a contract by their ranks among the pilots."""
    import numpy as np

    from validation.patients import pack_features

    ranks = [np.frombuffer(patients.profile(key), dtype=np.uint8) for key in exposures]
    return pack_features(exposures, np.vstack(ranks))


def claim_of(frozen: FrozenContract) -> str:
    """Names what a contract does in its data, whatever the hypothesis is called or argued with.

    What is left at its default does not enter, so that a later version of SAGE, whose contracts
    have more fields, names it alike.
    """
    value = frozen.contract.model_dump(mode="json", exclude_defaults=True)
    value = {key: part for key, part in value.items() if key not in PROSE}
    hypothesis = value["hypothesis"]
    value["hypothesis"] = {key: part for key, part in hypothesis.items() if key not in PROSE}
    return sha256_text(canonical_json([value, frozen.data_hashes]))[:16]


def entry_of(frozen: FrozenContract, outcome: TestOutcome) -> Entry:
    """The ledger's line for a test outcome."""
    return Entry(
        contract=frozen.sha256,
        hypothesis=frozen.contract.hypothesis.id,
        cohort=frozen.contract.cohort,
        test=outcome.id,
        role=outcome.role,
        part=outcome.part,
        claim=outcome.claim,
        status=outcome.status,
        p=None if outcome.p is None else float(f"{outcome.p:.12g}"),
        n=outcome.n,
        code=outcome.code,
        reason=outcome.reason,
        draw=draw_of(frozen),
    )


def draw_of(frozen: FrozenContract) -> str:
    """Names which patients a contract holds back; empty where it holds back none."""
    split = frozen.contract.split
    if split.policy == "none":
        return ""
    parts = [frozen.data_hashes, frozen.contract.seed, split.confirmation]
    return sha256_text(canonical_json(parts))[:12]

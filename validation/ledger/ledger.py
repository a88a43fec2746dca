"""The error ledger: every attempted test on the same patients, including crashes and screens.

Error rates are controlled over the ledger, not per hypothesis: each hypothesis's primary
test is a claim, and every further hypothesis makes the correction stricter. A test that
crashed or was refused counts as an attempt with p = 1. Contracts are registered when they
are frozen, so that the ledger shows which claims were written after results were seen.

The record follows the patients: it is kept in a store (`validation.ledger.store`) and is
found by fingerprints of their data, regardless of folder, cohort name or identifiers. A
folder's `ledger.jsonl` is its extract from the store, with everything on which the
folder's verdicts are based, so that they can be read without the store. Each line is
hashed with the line before it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sage.core.errors import InputError
from sage.core.hashes import hash_text
from validation.contracts.contract import FrozenContract, SplitRule
from validation.core.hypothesis import disjoint, levels_of
from validation.core.types import canonical_json
from validation.ledger.asked import asked_before, patients_data, question_label, screened_before
from validation.ledger.error_control import Adjusted, Claim, adjusted_claims
from validation.ledger.journal import Journal
from validation.ledger.lines import (
    FILE,
    KINDS,
    Entry,
    Incident,
    Line,
    Registration,
    S,
    Said,
    Screened,
    Unlock,
    claim_of,
    draw_of,
    line_model,
    line_text,
)
from validation.ledger.patients import Patients, pack_features
from validation.ledger.store import Mark, Row, Store

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.ledger.asked import Related
    from validation.ledger.patients import Patients

UNLOCK = SplitRule().unlock_alpha
LedgerState = Literal["intact", "emptied", "edited", "missing", "unverified"]
"""State of the ledger; `unverified` means that it has no store and covers only this folder."""


class Ledger:
    """The ledger for a folder's patients, including attempts on them from other folders.

    `path` is the folder's file; None to write only to the store.

    Raises `InputError` if a line was edited, removed or replaced; the message gives its
    number. An incomplete last line, left by an interruption, is dropped; `notes` mentions it.
    """

    def __init__(self, path: Path | None, store: Store | None = None) -> None:
        self.path = path
        self.store = store
        self._journal = Journal(path)
        self._second: dict[str, str] = {}
        self._kin: dict[str, frozenset[str]] = {}
        self._patients: dict[int, tuple[Cohort, Patients]] = {}
        self._emptied = self._lacks_results()

    # -- contents -----

    @property
    def lines(self) -> list[Line]:
        """All lines: from this folder, and from other folders on its patients."""
        return self._journal.lines

    @property
    def entries(self) -> list[Entry]:
        """The attempts in this folder."""
        return self._journal.all_of(Entry, own=True)

    @property
    def unlocks(self) -> list[Unlock]:
        """The times that confirmation patients were unlocked in this folder."""
        return self._journal.all_of(Unlock, own=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """Descriptions of damage to the file."""
        return tuple(
            incident.why for incident in (*self._journal.all_of(Incident), *self._journal.pending)
        )

    @property
    def state(self) -> LedgerState:
        """State of the record; "intact" if no line is missing or edited."""
        if self._emptied or self._noted_emptied():
            return "emptied"
        if self.store is None:
            return "unverified"
        if self.store.problem():
            return "edited"
        marks = [line.mark for line in self.lines] + [self.store.remembered()]
        lost = self.store.lacks(mark for mark in marks if mark is not None)
        if lost is None:
            return "intact"
        return "emptied" if lost.store == self.store.id else "missing"

    def _noted_emptied(self) -> bool:
        return any(note.incident == "emptied" for note in self._journal.all_of(Incident))

    def _lacks_results(self) -> bool:
        """Check for results whose contract is missing from the file, meaning lines were removed.

        A contract is registered before any file is written for it, so an interruption cannot be
        the cause.
        """
        if self.path is None or self.path.name != FILE:
            return False
        known = {registration.registered for registration in self._journal.all_of(Registration)}
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
                    if not self._noted_emptied():
                        self._journal.pending.append(Incident(incident="emptied", why=why))
                    return True
        return False

    # -- registering -----

    def register(
        self, frozen: FrozenContract, cohort: Cohort | None = None, *, fresh: bool = True
    ) -> Registration:
        """Register a contract once, when it is frozen and before any of its results.

        Parameters
        ----------
        fresh : False for a contract read from a file; unless already registered here, it counts
            as not registered when it was frozen
        """
        contract = frozen.contract
        own = [
            registration
            for registration in self._journal.all_of(Registration, own=True)
            if registration.registered == frozen.sha256
        ]
        if own and (self.store is None or cohort is None):
            return own[0]
        mine = Registration(
            registered=frozen.sha256,
            hypothesis=contract.hypothesis.id,
            cohort=contract.cohort,
            endpoint=contract.primary_test.endpoint,
            exposures=tuple(sorted({exposure.key for exposure in contract.exposures})),
            parent=contract.parent,
            claim=claim_of(frozen),
            frozen=fresh,
            place=contract.online.place if contract.online is not None else None,
            within=levels_of(contract.hypothesis),
        )
        if self.store is None or cohort is None:
            self._add([mine])
            return mine
        patients, related = self._related_populations(cohort)
        data = patients_data(patients, mine.exposures)
        earlier = [
            row
            for row in self.store.of_contract([frozen.sha256])
            if row.kind == "registration" and row.population in related
        ]
        if earlier:
            mine = Registration.model_validate_json(earlier[0].body)
            screened = screened_before(
                self.store, cohort, patients, related, mine, before=earlier[0].at
            )
            more = tuple(sorted({*mine.screened, *screened}))
            kept = [Registration.model_validate_json(row.body) for row in earlier]
            same = [
                registration for registration in kept if set(registration.screened) >= set(more)
            ]
            mine = same[0] if same else mine.model_copy(update={"screened": more})
            if fresh and not any(registration.frozen for registration in kept):
                mine = mine.model_copy(update={"frozen": True})
        else:
            screened = screened_before(self.store, cohort, patients, related, mine)
            mine = self._name_question(mine, patients, related, screened=screened)
        self._add([mine], data)
        self.follow(cohort)
        return mine

    def register_replication(self, frozen: FrozenContract, cohort: Cohort) -> None:
        """Register that a contract is about to be repeated in a second cohort's patients.

        The second cohort's results then count as seen: its own claim on the same question is
        exploratory.
        """
        mine = self.registration(frozen.sha256)
        if self.store is None or mine is None:
            return
        patients, related = self._related_populations(cohort)
        said = self._name_question(mine, patients, related, cohort=cohort.id, screened=())
        self._second[frozen.sha256] = said.population
        self._add([said], patients_data(patients, mine.exposures))
        self.follow(cohort)

    def _name_question(
        self, mine: Registration, patients: Patients, related: Related, **more: Any
    ) -> Registration:
        """Return the registration with the labels for its question in a cohort's patients."""
        assert self.store is not None
        digest = patients.population.digest
        first, *also = asked_before(self.store, patients, related, mine) or [
            question_label(digest, mine)
        ]
        named = {"population": digest, "asks": first, "also": tuple(also)}
        return mine.model_copy(update=named | more)

    def follow(self, cohort: Cohort) -> None:
        """Import the store's entries on these patients from other folders."""
        if self.store is None:
            return
        _, related = self._related_populations(cohort)
        own = {
            registration.registered for registration in self._journal.all_of(Registration, own=True)
        }
        there = {entry.key for entry in self.entries}
        lines: list[Line] = []
        for row in self.store.rows(related, ("registration", "entry", "unlock", "screen")):
            said = line_model(json.loads(row.body))
            mine = said.contract in own
            if isinstance(said, Entry) and (
                said.key in there
                if mine
                else not (said.claim or said.role in ("primary", "replication"))
            ):
                continue
            lines.append(self._line(said, row, elsewhere=not mine))
        self._journal.add(lines)

    def follow_all(self) -> None:
        """Import all entries in the store, for any patients."""
        if self.store is not None:
            rows = [row for row in self.store.all_rows() if row.kind in KINDS.values()]
            self._journal.add(
                self._line(line_model(json.loads(row.body)), row, True) for row in rows
            )

    def screen(self, cohort: Cohort, endpoint: str, names: Sequence[str], ranks: Any) -> None:
        """Record that features are about to be ranked by an endpoint in these patients.

        Parameters
        ----------
        ranks : (features, pilots) ranks of the features, from `validation.ledger.patients.profiles`
        """
        data = pack_features(names, ranks)
        what = hash_text(canonical_json([endpoint, sorted(names)]))[:16]
        said = Screened(screen=what, cohort=cohort.id, endpoint=endpoint, features=len(names))
        if self.store is not None:
            patients, _ = self._related_populations(cohort)
            said = said.model_copy(update={"population": patients.population.digest})
        self._add([said], data)

    def patients(self, cohort: Cohort) -> Patients:
        """Return a cohort's patients with their fingerprints, computed once."""
        known = self._patients.get(id(cohort))
        if known is None:
            known = self._patients[id(cohort)] = (cohort, Patients(cohort))
        return known[1]

    def _related_populations(self, cohort: Cohort) -> tuple[Patients, Related]:
        """Return a cohort's patients, and the stored populations that share some of them."""
        assert self.store is not None
        patients = self.patients(cohort)
        mine = patients.population
        row = Row("population", "", mine.digest, canonical_json(mine.digest), mine.pack)
        self.store.append([row])
        related = self.store.same_patients(patients)
        self._kin[mine.digest] = frozenset({mine.digest, *related})
        return patients, related

    # -- attempts -----

    def record(self, *entries: Entry) -> None:
        """Append attempts; repeating an identical attempt adds nothing."""
        self._add(entries)

    def registration(self, contract: str) -> Registration | None:
        """Return a contract's registration, preferring the one made when it was frozen."""
        return self._journal.registrations.get(contract)

    def is_registered(self, frozen: FrozenContract) -> bool:
        """Check whether the contract was registered when frozen, before any of its results.

        Without a store, a contract unknown to the ledger counts as registered.
        """
        mine = self.registration(frozen.sha256)
        if mine is None:
            return self.store is None
        claim = self._claim(frozen.sha256)
        registered = [
            order
            for order, said in self._sort_lines(Registration)
            if said.frozen and self._claim(said.registered) == claim
        ]
        results = [
            order
            for order, said in self._sort_lines(Entry)
            if said.contract == frozen.sha256 and said.p is not None
        ]
        return bool(registered) and (not results or min(registered) < min(results))

    def _sort_lines(self, kind: type[S]) -> list[tuple[tuple[str, int], S]]:
        """Return all entries of a kind with their order, earliest first."""
        found = [(line.order, line.said) for line in self.lines if isinstance(line.said, kind)]
        return sorted(found, key=lambda item: item[0])

    def find_screened(self, frozen: FrozenContract) -> str:
        """Describe the exposures that were screened in these patients before."""
        mine = self.registration(frozen.sha256)
        return "; ".join(mine.screened) if mine is not None else ""

    def _claim(self, contract: str) -> str:
        """Return the key for a contract's computation; equal keys count as a single attempt."""
        found = self.registration(contract)
        return found.claim if found is not None and found.claim else contract

    def _question(self, entry: Entry | Unlock) -> tuple[str, ...]:
        found = self.registration(entry.contract)
        return found.question if found is not None else (entry.cohort, entry.hypothesis)

    def _asks_the_same(self, line: Line, frozen: FrozenContract) -> bool:
        """Check whether a line is for another contract on the same question, or an earlier version.

        In this folder, any other contract with the same hypothesis ID counts too.
        """
        content = line.said
        if self._claim(content.contract) == self._claim(frozen.sha256):
            return False
        mine, theirs = self.registration(frozen.sha256), self.registration(content.contract)
        if content.contract in self._ancestors(frozen):
            return True
        if theirs is not None and disjoint(levels_of(frozen.contract.hypothesis), theirs.within):
            return False  # For example, men and women: no patient is in both.
        if mine is not None and theirs is not None and mine.asks and theirs.asks:
            asked = [{each.asks, *each.also} for each in (mine, theirs)]
            if asked[0] & asked[1]:
                return True
        assert isinstance(content, Entry | Unlock)
        if line.elsewhere or content.cohort not in ("", frozen.contract.cohort):
            return False
        named = content.hypothesis == frozen.contract.hypothesis.id
        return named or (mine is not None and self._question(content) == mine.question)

    def _ancestors(self, frozen: FrozenContract) -> set[str]:
        found: set[str] = set()
        parent = frozen.contract.parent
        while parent is not None and parent not in found:
            found.add(parent)
            known = self.registration(parent)
            parent = known.parent if known is not None else None
        return found

    def require_unopened(self, key: str, frozen: FrozenContract) -> None:
        """Check that no other contract for this claim has opened the confirmation patients.

        Raises `InputError` if another contract did: another version, seed or share, or the claim
        under another name.
        """
        for line in self.lines:
            content = line.said
            if not isinstance(content, Unlock) or not self._asks_the_same(line, frozen):
                continue
            if content.unlock == key or content.cohort:
                raise InputError(
                    f'the confirmation patients in cohort "{frozen.contract.cohort}" were '
                    f'already opened for hypothesis "{content.hypothesis}" under '
                    f"contract {content.contract[:12]}; another version, seed or share "
                    "of it cannot be confirmed on the same data. Repeat the earlier "
                    "call, or confirm the hypothesis in a second cohort (--replicate)"
                )

    def unlock(self, key: str, frozen: FrozenContract) -> None:
        """Open the confirmation patients for a hypothesis's contract, once.

        Raises `InputError` if they were opened before for another contract of that hypothesis.
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
        """Check whether `contract` may read the confirmation patients."""
        return any(unlock.unlock == key and unlock.contract == contract for unlock in self.unlocks)

    def places(self) -> list[int]:
        """List the places in online error control occupied by this folder's contracts."""
        own = self._journal.all_of(Registration, own=True)
        return [found.place for found in own if found.place is not None]

    def next_place(self) -> int:
        """Return the first free place in online error control for these patients.

        A claim whose discovery part missed its level was never confirmed. Its place, which
        depends only on that part, goes to the next claim.
        """
        held = {
            found.place
            for found in self._journal.all_of(Registration)
            if found.place is not None and not self._explored_in_vain(found.contract)
        }
        return next(place for place in range(1, len(held) + 2) if place not in held)

    def place_taken(self, frozen: FrozenContract) -> str | None:
        """Find an earlier contract with the same online-control place, still confirmable."""
        online = frozen.contract.online
        if online is None:
            return None
        registered = self._sort_lines(Registration)
        claim = self._claim(frozen.sha256)
        mine: dict[str, tuple[str, int]] = {}
        for order, said in registered:
            if self._claim(said.contract) == claim:
                mine.setdefault(said.population, order)
        # The place is on the patients that confirm; a second cohort is registered last.
        since = max(mine.values(), default=None)
        for order, said in registered:
            if said.place != online.place or self._claim(said.contract) == claim:
                continue
            if (since is None or order < since) and not self._explored_in_vain(said.contract):
                return said.contract
        return None

    def _explored_in_vain(self, contract: str) -> bool:
        """Check whether the discovery part clearly missed its level.

        A crashed test does not count as a miss: once fixed, it may still unlock the confirmation.
        """
        found = [
            entry
            for entry in self._journal.all_of(Entry)
            if entry.contract == contract
            and entry.role == "primary"
            and entry.part in ("discovery", "all")
        ]
        return bool(found) and all(
            entry.p is not None and entry.status == "ok" and entry.p >= UNLOCK for entry in found
        )

    def seen_before(self, frozen: FrozenContract) -> str | None:
        """Find another contract on the question with results before this registration.

        Results from a discovery part do not count if this contract holds out the same patients,
        which were not seen.

        Returns
        -------
        Hash of that contract, or None if no other contract had results before.
        """
        draw = draw_of(frozen)
        claim = self._claim(frozen.sha256)
        own = [
            line.order
            for line in self.lines
            if isinstance(line.said, Entry | Registration)
            and self._claim(line.said.contract) == claim
        ]
        for line in sorted(self.lines, key=lambda line: line.order):
            content = line.said
            if not isinstance(content, Entry) or (own and line.order > min(own)):
                continue
            unseen = content.part == "discovery" and draw != "" and content.draw == draw
            known = content.status == "ok" and content.p is not None
            if known and not unseen and self._asks_the_same(line, frozen):
                return content.contract
        return None

    def claims(self, role: str = "primary") -> list[Entry]:
        """Return the claims with a role on these patients: each attempt in its latest state."""
        found: dict[tuple[str, str, str], Entry] = {}
        for entry in self._journal.all_of(Entry):
            if entry.claim and entry.role == role:
                found[entry.key] = entry
        return list(found.values())

    def adjust(
        self,
        role: str = "primary",
        instead: Mapping[str, float] | None = None,
        *,
        of: str | None = None,
    ) -> list[Adjusted]:
        """Apply error control to the claims with a role (`validation.ledger.error_control`)."""
        kin = self._kin.get(self._population_of(of)) if of is not None else None
        claims = [
            Claim(
                entry=entry,
                question=self._question(entry),
                does=self._claim(entry.contract),
            )
            for entry in self.claims(role)
            if kin is None or self._population_of(entry.contract) in ("", *kin)
        ]
        return adjusted_claims(claims, instead)

    def _population_of(self, contract: str) -> str:
        found = self.registration(contract)
        return "" if found is None else found.population

    def counts(self) -> dict[str, int]:
        """Count this folder's attempts by status."""
        found: dict[str, int] = {"attempts": len({entry.key for entry in self.entries})}
        for item in {entry.key: entry for entry in self.entries}.values():
            found[item.status] = found.get(item.status, 0) + 1
        return found

    # -- writing -----

    def _add(self, said: Sequence[Said], data: bytes | None = None) -> None:
        """Write to the store first, then to the file, so that the store has every line."""
        if not said:
            return
        if self.store is None:
            self._journal.add(Line(entry, "", False) for entry in said)
            return
        rows = [
            Row(KINDS[type(entry)], entry.contract, self._population(entry), line_text(entry), data)
            for entry in said
        ]
        kept = self.store.append(rows)
        self._journal.add(self._line(entry, row) for entry, row in zip(said, kept, strict=True))

    def _line(self, said: Said, row: Row, elsewhere: bool = False) -> Line:
        assert self.store is not None
        mark = Mark(store=self.store.id, seq=row.seq, chain=row.chain)
        return Line(said, row.at, elsewhere, mark)

    def _population(self, entry: Said) -> str:
        if isinstance(entry, Registration | Screened):
            return entry.population
        if isinstance(entry, Entry) and entry.part == "replication":
            return self._second.get(entry.contract, "")
        return self._population_of(entry.contract)

"""The error ledger: every attempted test of a run, crashed ones too.

Error rates are controlled over the ledger, not per hypothesis: each hypothesis' primary test is
one claim, and whoever tries more hypotheses pays for them. A test that crashed or was refused
counts as an attempt with p = 1. Contracts are registered when they are frozen, so that the ledger
tells which claims were written after results were seen.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from validation.contract import FrozenContract
from validation.errors import InputError
from validation.hypothesis import Strict
from validation.results import TestOutcome
from validation.types import canonical_json, sha256_text


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
    """A contract that was frozen when the ledger held what stands above it."""

    registered: str
    hypothesis: str
    cohort: str
    endpoint: str
    exposures: tuple[str, ...]

    @property
    def question(self) -> tuple[str, ...]:
        """What is asked of which patients: contracts that differ otherwise ask it again."""
        return (self.cohort, self.endpoint, *self.exposures)


class Unlock(Strict):
    """The confirmation patients of a cohort were opened for one contract."""

    unlock: str
    contract: str
    hypothesis: str
    cohort: str = ""


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


class Ledger:
    """An append-only file of attempts (`ledger.jsonl`), flushed to disk at each line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries: list[Entry] = []
        self.unlocks: list[Unlock] = []
        self._registered: dict[str, Registration] = {}
        self._before: dict[str, int] = {}
        if not path.is_file():
            return
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                value = json.loads(line)
                if "registered" in value:
                    self._keep(Registration.model_validate(value))
                elif "unlock" in value:
                    self.unlocks.append(Unlock.model_validate(value))
                else:
                    self.entries.append(Entry.model_validate(value))
            except (json.JSONDecodeError, ValidationError) as error:
                raise InputError(
                    f"{path}: line {number} is not a ledger entry ({error}); a ledger must not be "
                    "edited. Restore it or start a new one"
                ) from None

    def record(self, entry: Entry) -> None:
        """Append one attempt; repeating an identical one adds nothing."""
        if entry in self.entries:
            return
        self.entries.append(entry)
        self._append(entry.model_dump(mode="json"))

    def register(self, frozen: FrozenContract) -> None:
        """Note that a contract is frozen now, before any result that follows; once."""
        contract = frozen.contract
        if frozen.sha256 in self._registered:
            return
        mine = Registration(
            registered=frozen.sha256,
            hypothesis=contract.hypothesis.id,
            cohort=contract.cohort,
            endpoint=contract.primary_test.endpoint,
            exposures=tuple(sorted({one.key for one in contract.exposures})),
        )
        self._keep(mine)
        self._append(mine.model_dump(mode="json"))

    def _keep(self, one: Registration) -> None:
        self._registered.setdefault(one.registered, one)
        self._before.setdefault(one.registered, len(self.entries))

    def _question(self, one: Entry | Unlock) -> tuple[str, ...]:
        found = self._registered.get(one.contract)
        return found.question if found is not None else (one.cohort, one.hypothesis)

    def _asks_the_same(self, one: Entry | Unlock, frozen: FrozenContract) -> bool:
        """Another contract on the same claim: of that name, or of that exposure and endpoint."""
        if one.contract == frozen.sha256 or one.cohort not in ("", frozen.contract.cohort):
            return False
        mine = self._registered.get(frozen.sha256)
        named = one.hypothesis == frozen.contract.hypothesis.id
        return named or (mine is not None and self._question(one) == mine.question)

    def require_unopened(self, key: str, frozen: FrozenContract) -> None:
        """Check that no other contract on this claim has opened the confirmation patients.

        Raises
        ------
        InputError
            If another one did: another version, seed or share, or the claim under another name.
        """
        for one in self.unlocks:
            if self._asks_the_same(one, frozen) and (one.unlock == key or one.cohort):
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
        if mine in self.unlocks:
            return
        self.unlocks.append(mine)
        self._append(mine.model_dump(mode="json"))

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
        own = (at for at, one in enumerate(self.entries) if one.contract == frozen.sha256)
        until = min(
            next(own, len(self.entries)), self._before.get(frozen.sha256, len(self.entries))
        )
        for one in self.entries[:until]:
            unseen = one.part == "discovery" and draw != "" and one.draw == draw
            known = one.status == "ok" and one.p is not None
            if known and not unseen and self._asks_the_same(one, frozen):
                return one.contract
        return None

    def _append(self, value: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n")
            handle.flush()
            os.fsync(handle.fileno())

    def claims(self, role: str = "primary") -> list[Entry]:
        """The claims of a role, each attempt once, the latest state of it."""
        found: dict[tuple[str, str, str], Entry] = {}
        for entry in self.entries:
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
        family = {one: at for at, one in enumerate(dict.fromkeys(questions))}
        asked: list[set[str]] = [set() for _ in family]
        for one, question in zip(claims, questions, strict=True):
            asked[family[question]].add(one.contract)
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
                family=len({one.contract for one in claims}),
            )
            for at, one in enumerate(claims)
        ]

    def _disjoint(self) -> dict[tuple[str, str], float]:
        """Product of the e-values of a claim's test on other patients than the claim's own."""
        from validation.statistics.multiplicity import p_to_e

        found: dict[tuple[str, str], float] = {}
        for one in {entry.key: entry for entry in self.entries}.values():
            other = one.part in ("discovery", "replication") and not one.claim
            if other and one.status == "ok" and one.p is not None:
                value = float(p_to_e([max(one.p, 1e-300)])[0])
                found[one.key[:2]] = found.get(one.key[:2], 1.0) * value
        return found

    def counts(self) -> dict[str, int]:
        """How many attempts, by how they ended."""
        found: dict[str, int] = {"attempts": len({one.key for one in self.entries})}
        for one in {entry.key: entry for entry in self.entries}.values():
            found[one.status] = found.get(one.status, 0) + 1
        return found


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

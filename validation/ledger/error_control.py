"""Error control over the claims of a ledger: Benjamini-Hochberg q-values, and e-BH."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sage.core.models import Strict
from validation.ledger.lines import Entry


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
    questions: int = 0
    """Number of different questions in the family, and so of p-values that are adjusted."""


@dataclass(frozen=True)
class Claim:
    """An attempt that counts as a claim, with its question and the key of its computation.

    `elsewhere` is the product of the e-values of the claim's test on other patients.
    """

    entry: Entry
    question: tuple[str, ...]
    does: str
    elsewhere: float


def adjusted_claims(
    claims: Sequence[Claim], alpha: float, instead: Mapping[str, float] | None = None
) -> list[Adjusted]:
    """Compute Benjamini-Hochberg q-values and e-BH over claims.

    The family contains each question once. Contracts that ask it again (another version, seed or
    cut) share a Bonferroni correction, so that repeating a strong claim does not lower the q of any
    other claim. For a hypothesis tested on disjoint patients (discovery, confirmation,
    replication), the e-values are multiplied; q-values use each claim's own p.

    `instead` maps contracts to a p-value that replaces that of their primary test.
    """
    from validation.statistics.multiplicity import bh, e_bh, p_to_e

    if not claims:
        return []
    questions = [claim.question for claim in claims]
    family = {question: at for at, question in enumerate(dict.fromkeys(questions))}
    asked: list[set[str]] = [set() for _ in family]
    for claim in claims:
        asked[family[claim.question]].add(claim.does)
    p, e = [], []
    for claim in claims:
        entry = claim.entry
        own = (instead or {}).get(entry.contract, entry.p)
        known = own is not None and entry.status == "ok"
        raw = max(own, 1e-300) if own is not None and known else 1.0
        p.append(min(1.0, raw * len(asked[family[claim.question]])))
        e.append(float(p_to_e([raw])[0]) * claim.elsewhere if known else 0.0)
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
            contract=entry.contract,
            hypothesis=entry.hypothesis,
            test=entry.test,
            part=entry.part,
            p=1.0 if entry.p is None or entry.status != "ok" else max(entry.p, 1e-300),
            q=q_of(at),
            e=e[at],
            e_bh=bool(kept[family[questions[at]]]),
            family=len({claim.does for claim in claims}),
            questions=len(family),
        )
        for at, entry in enumerate(claim.entry for claim in claims)
    ]

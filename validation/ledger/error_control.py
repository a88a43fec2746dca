"""Error control over the claims in a ledger, by Holm's method.

Holm's adjusted p-value is immune to padding: registering a further claim never lowers the
adjusted p-value of any other, whereas a Benjamini-Hochberg q-value falls with every known
truth in the family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sage.core.models import Strict
from validation.ledger.lines import Entry


class Adjusted(Strict):
    """A claim after error control over all claims with its role; `q` is its adjusted p-value."""

    contract: str
    hypothesis: str
    test: str
    part: str
    p: float
    q: float
    family: int
    questions: int = 0
    """Number of distinct questions in the family, and thus of adjusted p-values."""


@dataclass(frozen=True)
class Claim:
    """An attempt that counts as a claim, with its question and the key of its computation."""

    entry: Entry
    question: tuple[str, ...]
    does: str


def adjusted_claims(
    claims: Sequence[Claim], instead: Mapping[str, float] | None = None
) -> list[Adjusted]:
    """Adjust the p-values of claims for multiple testing.

    The family contains each question once. Contracts that repeat it (another version, seed or
    cut) share a Bonferroni correction, so that repeating a strong claim does not lower the q
    of any other claim.

    `instead` maps contracts to a p-value that replaces that of their primary test.
    """
    from validation.statistics.multiplicity import holm

    questions = [claim.question for claim in claims]
    family = {question: at for at, question in enumerate(dict.fromkeys(questions))}
    asked: list[set[str]] = [set() for _ in family]
    for claim in claims:
        asked[family[claim.question]].add(claim.does)
    p, best = [], [1.0] * len(family)
    for claim in claims:
        entry, place = claim.entry, family[claim.question]
        own = (instead or {}).get(entry.contract, entry.p)
        known = own is not None and entry.status == "ok"
        raw = max(own, 1e-300) if own is not None and known else 1.0
        p.append(min(1.0, raw * len(asked[place])))
        best[place] = min(best[place], p[-1])

    def q_of(at: int) -> float:
        place = family[questions[at]]
        return float(holm([*best[:place], p[at], *best[place + 1 :]])[place])

    return [
        Adjusted(
            contract=entry.contract,
            hypothesis=entry.hypothesis,
            test=entry.test,
            part=entry.part,
            p=1.0 if entry.p is None or entry.status != "ok" else max(entry.p, 1e-300),
            q=q_of(at),
            family=len({claim.does for claim in claims}),
            questions=len(family),
        )
        for at, entry in enumerate(claim.entry for claim in claims)
    ]

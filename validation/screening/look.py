"""Record of the data viewed in an exploration; viewed variables count as screened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from validation.ledger.patients import profiles

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort
    from validation.ledger.ledger import Ledger


@dataclass(frozen=True)
class Look:
    """Variables, genes (by key) and endpoints shown to the user.

    `spent` lists the endpoints that these reveal: those shown, those that share a column with
    them, and those contained in a shown variable. `held_back` lists variables that are not
    shown because they contain an outcome.
    """

    variables: tuple[str, ...]
    genes: tuple[str, ...]
    endpoints: tuple[str, ...]
    spent: tuple[str, ...]
    held_back: tuple[str, ...] = ()

    def __str__(self) -> str:
        genes = f" and {len(self.genes)} genes" if self.genes else ""
        against = ", ".join(self.spent) if self.spent else "no outcome"
        return f"{len(self.variables)} variables{genes} against {against}"


def look_at(cohort: Cohort, variables: Sequence[str] = (), endpoints: Sequence[str] = ()) -> Look:
    """Select the variables to show: those named, or genes and all variables that reveal no outcome.

    Raises `InputError` for a variable or an endpoint that the cohort does not have.
    """
    for name in endpoints:
        cohort.outcome(name)
    every = tuple(cohort.spec.endpoints)
    genes: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    if variables:
        for key in variables:
            cohort.column(key)
        shown = tuple(dict.fromkeys(variables))
    else:
        every_key, unseen = cohort.keys(), [name for name in every if name not in endpoints]
        held_back = tuple(
            key for key in every_key if any(_holds(cohort, key, name) for name in unseen)
        )
        shown = tuple(key for key in every_key if key not in held_back)
        symbols = cohort.expression.genes if cohort.expression is not None else ()
        genes = tuple(f"expression:{gene}" for gene in symbols)
    if not shown and not genes:
        raise InputError(f'cohort "{cohort.id}" has no variables to show; set --variable')
    read = frozenset().union(*(cohort.outcome_columns(name) for name in endpoints))
    spent = tuple(
        name
        for name in every
        if cohort.outcome_columns(name) & read or any(_holds(cohort, key, name) for key in shown)
    )
    return Look(shown, genes, tuple(dict.fromkeys(endpoints)), spent, held_back)


def _holds(cohort: Cohort, key: str, endpoint: str) -> bool:
    """Check whether a variable shares columns with an outcome or is declared to contain it."""
    contained = set(getattr(cohort.spec.endpoints[endpoint], "contained_in", ()))
    return bool(
        cohort.parts_of(key) & contained
        or cohort.columns_read(key) & cohort.outcome_columns(endpoint)
    )


def note_look(ledger: Ledger, cohort: Cohort, look: Look) -> None:
    """Record the data about to be viewed in the ledger, as a screen against each spent endpoint."""
    if not look.spent:
        return
    patients = ledger.patients(cohort)
    ranks: list[NDArray[np.uint8]] = [
        np.frombuffer(patients.profile(key), dtype=np.uint8)[None] for key in look.variables
    ]
    if look.genes:
        ranks.append(_gene_ranks(cohort, [patients.ids[at] for at in patients.pilots]))
    for endpoint in look.spent:
        ledger.screen(cohort, endpoint, [*look.variables, *look.genes], np.vstack(ranks))


def _gene_ranks(cohort: Cohort, pilots: Sequence[str]) -> NDArray[np.uint8]:
    assert cohort.expression is not None
    values, patients = cohort.block(cohort.expression.genes)
    of_pilots = pd.DataFrame(values, index=patients).reindex(
        [cohort.pseudonyms[name] for name in pilots]
    )
    return profiles(of_pilots.to_numpy(dtype=float).T)

"""Search for earlier questions and screens on the same patients, matched by their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from sage.core.hashes import hash_text
from validation.core.dictionary import split_level_key
from validation.core.signature import read_signature
from validation.core.types import canonical_json
from validation.ledger.lines import Registration, Screened
from validation.ledger.patients import pack_features, unpack
from validation.ledger.store import Store

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort
    from validation.ledger.patients import Match, Patients, Population

    Related = Mapping[str, tuple[Population, Match]]
    """Stored populations that share patients with a cohort, by digest."""


def question_label(population: str, mine: Registration) -> str:
    """Build the label for a question not yet asked about these patients."""
    return hash_text(canonical_json([population, mine.endpoint, mine.exposures]))[:16]


def asked_before(
    store: Store, patients: Patients, related: Related, mine: Registration
) -> list[str]:
    """Return the labels under which the same question was asked before, earliest first."""
    labels = []
    for row in store.rows(related, ("registration",)):
        other = Registration.model_validate_json(row.body)
        population, match = related[row.population]
        same = other.endpoint == mine.endpoint or patients.same_outcome(
            mine.endpoint, population, other.endpoint, match
        )
        if not same or len(other.exposures) != len(mine.exposures):
            continue
        if other.exposures != mine.exposures:
            header, ranks = unpack(store.data(row))
            found = [set(patients.twins(key, ranks, match)) for key in mine.exposures]
            if not all(found) or set.union(*found) != set(range(len(header["names"]))):
                continue
        labels += [other.asks, *other.also]
    return list(dict.fromkeys(label for label in labels if label))


def screened_before(
    store: Store,
    cohort: Cohort,
    patients: Patients,
    related: Related,
    mine: Registration,
    before: str = "",
) -> tuple[str, ...]:
    """Find exposures screened in these patients before the contract was registered."""
    keys = list(mine.exposures)
    for key in mine.exposures:
        if (levels := split_level_key(key)) is not None:
            keys.append(levels[0])
        if key in cohort.derived:
            keys += cohort.derived[key].of
        if (signature := read_signature(key)) is not None and cohort.expression is not None:
            keys += [
                f"expression:{gene}" for gene in signature.split_measured(cohort.expression)[0]
            ]
    found = {}
    for row in store.rows(related, ("screen",)):
        said = Screened.model_validate_json(row.body)
        population, match = related[row.population]
        same = said.endpoint == mine.endpoint or patients.same_outcome(
            mine.endpoint, population, said.endpoint, match
        )
        if not same or (before and row.at >= before):
            continue
        header, ranks = unpack(store.data(row))
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


def patients_data(patients: Patients, exposures: Sequence[str]) -> bytes:
    """Pack a contract's exposures with their ranks among the pilots."""
    ranks = [np.frombuffer(patients.profile(key), dtype=np.uint8) for key in exposures]
    return pack_features(exposures, np.vstack(ranks))

"""Preparation of analysis-ready inputs from a frozen contract and a cohort.

The inputs contain only the data required by the contract, under pseudonyms, and come with
the program that reads them. Confirmation patients are not written before they are
unlocked: data that are not mounted cannot be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from sage.core.errors import InputError
from sage.core.files import write_text, writing
from sage.core.hashes import hash_file, hash_text
from sage.core.seeds import generator
from validation.cohort.derive import composed_scores
from validation.contracts.contract import Contract, FrozenContract, VariableUse
from validation.contracts.timing import as_known, require_known
from validation.controls.run import SEPARATOR, is_replaceable
from validation.core.dictionary import known_since, split_level_key
from validation.core.signature import GeneSignature, read_signature
from validation.core.types import canonical_json
from validation.drafting.freezing import changed_data
from validation.inputs.population import Cut, confirmation_mask, find_cuts
from validation.inputs.variables import describe_use, find_variable
from validation.ledger.ledger import Ledger
from validation.run.overlap import DESCRIPTION, require_other_patients
from validation.statistics.permuted import matched_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort
    from validation.inputs.prediction import PredictionModel

ADDED = "features/"
Part = Literal["all", "discovery", "confirmation", "replication"]

CODE = '''\
"""Analysis compiled from validation contract {short}.

Hypothesis: {statement}
Runs the registered tests of the contract and nothing else.
"""

import sys
from pathlib import Path

from validation.analysis.analysis import Analysis


def main(inputs: Path, out: Path) -> None:
    analysis = Analysis.open(inputs)
    if analysis.frozen.sha256 != "{sha256}":
        raise SystemExit("these inputs belong to another contract")
    analysis.run()
    analysis.finish(out)


if __name__ == "__main__":
    main(
        Path(sys.argv[1] if len(sys.argv) > 1 else "inputs"),
        Path(sys.argv[2] if len(sys.argv) > 2 else "out"),
    )
'''


def render_program(frozen: FrozenContract) -> str:
    """Render a contract's analysis program; the same contract always gives the same text.

    The program expects two arguments, the inputs folder and the results folder.
    """
    statement = " ".join(frozen.contract.hypothesis.statement.split())
    statement = statement.replace("\\", "/").replace('"', "'")
    return CODE.format(short=frozen.sha256[:12], sha256=frozen.sha256, statement=statement)


def confirmation_key(frozen: FrozenContract) -> str:
    """Identify the patients in whom a hypothesis may be confirmed once, by the cohort's own files.

    Seed and share are left out of the key, since another draw from the same patients would
    include some that were seen before. The cohort's description and added feature tables are
    also left out, since they do not change the patients. The ledger records each opening of
    these patients per hypothesis.
    """
    files = {
        digest
        for name, digest in frozen.data_hashes.items()
        if name != DESCRIPTION and not name.startswith(ADDED)
    }
    return hash_text(canonical_json(sorted(files)))


def prepare(
    frozen: FrozenContract,
    cohort: Cohort,
    folder: Path,
    *,
    part: Part = "all",
    ledger: Ledger | None = None,
    cuts: tuple[Cut, ...] | None = None,
    model: PredictionModel | None = None,
) -> dict[str, Any]:
    """Write `contract.json`, `table.parquet`, `controls.parquet` and `provenance.json`.

    Parameters
    ----------
    part : "all" for contracts without a split; "discovery", then "confirmation" for those
        with a split (with the discovery part's `cuts`); "replication" for a second cohort
    ledger : required for "confirmation", and must contain the unlock

    Raises
    ------
    InputError
        If the data changed since the contract was frozen, or the part may not be read.
    """
    contract = frozen.contract
    _may_read(frozen, cohort, part, ledger)
    endpoints = list(dict.fromkeys(endpoint.key for endpoint in contract.endpoints))
    positive = contract.controls.known_positive
    if part != "replication" and positive is not None and positive.endpoint not in endpoints:
        endpoints.append(positive.endpoint)
    negative = contract.controls.negative_endpoint
    if part != "replication" and negative is not None and negative not in endpoints:
        endpoints.append(negative)
    keys = contract.keys()
    if part == "replication":
        extra = [
            key
            for key in (*contract.covariates, *contract.strata, contract.cluster)
            if key is not None and _has_variable(cohort, key)
        ]
        late = {use.key for use in contract.variables if use.known_at == "column"}
        extra += [known_since(key) for key in extra if key in late]
        keys = list(dict.fromkeys([*_required_variables(contract), *extra]))
        endpoints = [contract.primary_test.endpoint]
    table = cohort.table(keys, endpoints)
    total = len(table)
    table, steps = as_known(table, contract)
    if part in ("discovery", "confirmation"):
        held = confirmation_mask(table, contract)
        keep = [item == (part == "confirmation") for item in held]
        table = table[keep]
    reason = ""
    if cuts is None:
        try:
            cuts = find_cuts(table, contract)
        except InputError as error:
            # The analysis will refuse the primary test for this reason; the ledger must record it.
            cuts, reason = (), str(error)
    folder.mkdir(parents=True, exist_ok=True)
    frozen.save(folder / "contract.json")
    _write_table(table, folder / "table.parquet")
    features = None
    if part in ("all", "discovery", "confirmation") and contract.controls.random_features:
        features = _features(contract, cohort, table)
    if features is not None:
        _write_table(features, folder / "controls.parquet")
    elif (folder / "controls.parquet").exists():
        (folder / "controls.parquet").unlink()
    provenance: dict[str, Any] = {
        "part": part,
        "contract_sha256": frozen.sha256,
        "cohort": cohort.id,
        "title": cohort.spec.title,
        "simulated": cohort.simulated,
        "data_hashes": cohort.hashes(),
        "patients": {"cohort": total, "written": len(table)},
        "columns": {key: _source(cohort, key) for key in keys},
        "endpoints": endpoints,
        "cuts": [cut.model_dump(mode="json") for cut in cuts],
        "model": None if model is None else model.model_dump(mode="json"),
        "refusal": reason,
        "joins": [join.model_dump(mode="json") for join in (*cohort.joins(), *steps)],
        "files": {
            name: hash_file(folder / name)
            for name in ("contract.json", "table.parquet", "controls.parquet")
            if (folder / name).exists()
        },
    }
    text = json.dumps(provenance, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    write_text(folder / "provenance.json", text)
    return provenance


def _required_variables(contract: Contract) -> list[str]:
    """Return the variables that a second cohort must have."""
    found = [exposure.key for exposure in contract.exposures] + [
        condition.variable for condition in contract.filters
    ]
    late = {variable.key for variable in contract.variables if variable.known_at == "column"}
    return found + [known_since(key) for key in found if key in late]


def require_variables(frozen: FrozenContract, second: Cohort) -> None:
    """Check that a second cohort has the primary test's inputs, before the first is analyzed.

    Raises `InputError` naming the variable if the cohort lacks a variable or the endpoint, or
    if an exposure became known only after the start of follow-up.
    """
    contract = frozen.contract
    for exposure in contract.hypothesis.exposures:
        if exposure.signature is not None:
            measured = set(second.dictionary().expression)
            exposure.signature.require_measured(measured, exposure.label, second.id)
    second.table(
        list(dict.fromkeys(_required_variables(contract))), [contract.primary_test.endpoint]
    )
    uses = [describe_use(second.dictionary(), use.key, use.role) for use in contract.exposures]
    require_known(contract.hypothesis, uses, [])


def require_same_data(frozen: FrozenContract, cohort: Cohort) -> None:
    """Check that a cohort is the contract's own, with the data on which it was frozen.

    Raises `InputError` if it is another cohort or a file changed; the message names it.
    """
    if cohort.id != frozen.contract.cohort:
        raise InputError(
            f'the contract is for cohort "{frozen.contract.cohort}", not "{cohort.id}"'
        )
    changed = changed_data(frozen, cohort)
    if changed:
        raise InputError(
            f"the data changed since the contract was frozen: {', '.join(changed)}. Restore the "
            "files (and give the same --features), or freeze a new version of the contract "
            "(`sage validate amend`)"
        )


def _may_read(frozen: FrozenContract, cohort: Cohort, part: Part, ledger: Ledger | None) -> None:
    contract = frozen.contract
    if part == "replication":
        require_other_patients(frozen, cohort)
        return
    require_same_data(frozen, cohort)
    split = contract.split.policy == "discovery_confirmation"
    if split != (part in ("discovery", "confirmation")):
        expected = "discovery or confirmation" if split else "all"
        raise InputError(f'the contract requires part "{expected}", not "{part}"')
    if part == "confirmation":
        key = confirmation_key(frozen)
        if ledger is None or not ledger.is_unlocked(key, frozen.sha256):
            raise InputError(
                "the confirmation patients are locked; run the discovery part first, after which "
                "the runner unlocks them once if it succeeds"
            )


def _has_variable(cohort: Cohort, key: str) -> bool:
    if key.startswith("expression:"):
        matrix = cohort.expression
        return matrix is not None and key.removeprefix("expression:") in matrix
    if read_signature(key) is not None or split_level_key(key) is not None:
        return cohort.dictionary().has_variable(key)
    return any(item == key for item in cohort.keys())  # noqa: SIM118 (a method, not a mapping)


def _source(cohort: Cohort, key: str) -> str:
    return find_variable(cohort.dictionary(), key).source if _has_variable(cohort, key) else ""


def _write_table(table: pd.DataFrame, path: Path) -> None:
    data = table.to_parquet(None, engine="fastparquet", compression="zstd", index=True)
    with writing(path) as stream:
        stream.write(data)


def _features(contract: Contract, cohort: Cohort, table: pd.DataFrame) -> pd.DataFrame | None:
    """Select comparable features for each gene or signature exposure, without using the outcome."""
    uses = [use for use in contract.exposures if is_replaceable(use)]
    if not uses or cohort.expression is None:
        return None
    matrix = cohort.expression
    values, patients = cohort.block(matrix.genes)
    values = np.asarray(values[:, :], dtype=float)
    usable = np.flatnonzero(values.std(axis=0) > 0)
    names = [matrix.genes[at] for at in usable]
    values = values[:, usable]
    place = {name: at for at, name in enumerate(names)}
    claimed = [gene for use in uses for gene in _genes(cohort, use)]
    barred = np.asarray([place[gene] for gene in claimed if gene in place], dtype=np.int64)
    columns: dict[str, Any] = {}
    for number, use in enumerate(uses):
        drawn = _draws(cohort, use, values, place, barred, contract, number)
        if drawn is None:
            continue
        for at in range(drawn.shape[1]):
            columns[f"{use.key}{SEPARATOR}{at:04d}"] = drawn[:, at]
    if not columns:
        return None
    frame = pd.DataFrame(columns, index=pd.Index(patients, name="patient"), dtype="float32")
    return frame.reindex(table.index)


def _genes(cohort: Cohort, use: VariableUse) -> list[str]:
    if use.key.startswith("expression:"):
        return [use.key.removeprefix("expression:")]
    return list(cohort.signature_genes(use.key))


def _draws(
    cohort: Cohort,
    use: VariableUse,
    values: NDArray[np.float64],
    place: dict[str, int],
    barred: NDArray[np.int64],
    contract: Contract,
    number: int,
) -> NDArray[np.float64] | None:
    """Return (patients, draws): the nearest genes, or scores of random sets matched gene by gene.

    For a single gene, all of its nearest genes are used, so that the control does not depend
    on the seed.
    """
    composed = read_signature(use.key)
    genes = [gene for gene in _genes(cohort, use) if gene in place]
    wanted = contract.controls.random_features
    picks = [
        matched_features(
            values,
            place[gene],
            draws=wanted,
            pool=min(wanted, max(len(place) // 4, 20)),
            seed=contract.seed + 101 * number + at,
            exclude=barred,
        )
        for at, gene in enumerate(genes)
    ]
    if not picks or min(len(pick) for pick in picks) < 20:
        return None
    if len(genes) == 1:
        return np.asarray(values[:, picks[0]], dtype=float)
    rng = generator(contract.seed, number)
    count = min(len(pick) for pick in picks)
    shuffled = [rng.permutation(pick)[:count] for pick in picks]
    sets = [np.asarray([item[at] for item in shuffled]) for at in range(count)]
    kept = GeneSignature(genes=tuple(genes)) if composed is None else composed.of_measured(place)
    return np.column_stack(composed_scores(kept, values.T, sets))

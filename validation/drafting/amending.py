"""Amendments: a frozen contract is never edited; changes make a new version.

A new version is drafted by the rules in `validation.drafting.draft`, so that its tests,
power and controls match the changes. It names its parent by hash, gives a reason, and
lists every change. The ledger keeps the earlier version's results, and a claim that was
changed after they were seen cannot be supported in the same patients
(`validation.verdict.verdict`, rule 4).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sage.core.errors import InputError
from sage.core.models import Strict
from validation.contracts.contract import (
    Contract,
    ControlPlan,
    FrozenContract,
    MissingRule,
    Rules,
    SpecificationPlan,
    SplitRule,
    validated,
)
from validation.core.hypothesis import Hypothesis
from validation.core.types import canonical_json
from validation.drafting.freezing import changed_data, draft_on, freeze

if TYPE_CHECKING:
    from validation.cohort.cohort import Cohort

PARTS: dict[str, type[Strict]] = {
    "hypothesis": Hypothesis,
    "rules": Rules,
    "missing": MissingRule,
    "split": SplitRule,
    "controls": ControlPlan,
    "specification": SpecificationPlan,
}
"""Parts that an amendment may change, in addition to `seed`. All other parts follow from these."""
DERIVED = ("controls", "specification")
"""Parts that are drafted from the hypothesis; fields set by hand are carried over."""
MARK = "version "


def amend(
    frozen: FrozenContract, cohort: Cohort, *, reason: str, changes: dict[str, Any]
) -> FrozenContract:
    """Freeze the next version of a contract on the current data.

    Raises `InputError` if the reason is empty, a name is unknown or not open to amendment,
    the result is not a valid contract, or neither the contract nor the data would change.
    """
    if not reason.strip():
        raise InputError("an amendment requires a reason")
    old = frozen.contract
    if old.online is not None:
        raise InputError(
            f"the contract holds place {old.online.place} in a campaign's error control, which is"
            " reserved for this version; test the changed claim in a new round (`sage "
            "campaign`)"
        )
    if old.cohort != cohort.id:
        raise InputError(
            f'the contract is for cohort "{old.cohort}", not "{cohort.id}"; another cohort '
            "requires its own contract"
        )
    before = settings(old)
    wanted = _apply_changes(before, changes)
    plan = _draft_settings(wanted, cohort)
    plain, fresh = _plain(before, cohort), settings(plan)
    own = {
        part: fresh[part] | _own(before[part], plain[part]) | _own(wanted[part], before[part])
        for part in DERIVED
    }
    plan = _validated(Contract, plan.model_dump(mode="json") | own)
    version = old.version + 1
    lines = [
        f"{MARK}{version} changes {name} from {canonical_json(was)} to {canonical_json(now)}"
        for name, was, now in differences(before, settings(plan))
    ]
    if data := changed_data(frozen, cohort):
        lines.append(f"{MARK}{version} reads changed data: {', '.join(data)}")
    if not lines:
        raise InputError("the amendment changes neither the contract nor the data")
    earlier = [note for note in old.notes if note.startswith(MARK)]
    values = plan.model_dump(mode="json") | {
        "version": version,
        "parent": frozen.sha256,
        "amendment": reason.strip(),
        "notes": [*plan.notes, *earlier, *lines],
    }
    return freeze(_validated(Contract, values), cohort)


def settings(contract: Contract) -> dict[str, Any]:
    """Return the chosen parts of a contract as JSON; the rest follows from them and the data."""
    values = contract.model_dump(mode="json")
    return {name: values[name] for name in (*PARTS, "seed")}


def differences(before: Any, after: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """List (dotted name, earlier value, later value) for every leaf that differs."""
    if isinstance(before, dict) and isinstance(after, dict):
        found = []
        for key in dict.fromkeys((*before, *after)):
            below = f"{name}.{key}" if name else key
            found += differences(before.get(key), after.get(key), below)
        return found
    return [] if before == after else [(name, before, after)]


def _apply_changes(before: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Apply the named changes to the settings, and validate each part."""
    wanted = dict(before)
    for name, value in changes.items():
        part, _, field = name.partition(".")
        if part == "seed" and not field:
            wanted["seed"] = value
            continue
        if part not in PARTS:
            raise InputError(
                f'"{name}" cannot be amended; fields that can be amended: '
                f"{', '.join(f'{part}.FIELD' for part in PARTS)}, seed"
            )
        if not field:
            wanted[part] = value
        elif not isinstance(wanted[part], dict):
            raise InputError(f'"{part}" was replaced by {wanted[part]!r}, which has no fields')
        elif field not in PARTS[part].model_fields:
            has = ", ".join(PARTS[part].model_fields)
            raise InputError(f'"{name}": {part} has no field "{field}"; available fields: {has}')
        else:
            wanted[part] = wanted[part] | {field: value}
    for part, model in PARTS.items():
        wanted[part] = _validated(model, wanted[part], f"{part}: ").model_dump(mode="json")
    if wanted["hypothesis"]["id"] != before["hypothesis"]["id"]:
        raise InputError(
            "an amendment must keep the hypothesis ID; another hypothesis requires its own contract"
        )
    return wanted


def _draft_settings(wanted: dict[str, Any], cohort: Cohort) -> Contract:
    rules = Rules.model_validate(wanted["rules"])
    seed = wanted["seed"]
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise InputError(f"seed must be a nonnegative integer, got {seed!r}")
    return draft_on(
        Hypothesis.model_validate(wanted["hypothesis"]),
        cohort,
        seed=seed,
        alpha=rules.alpha,
        split=SplitRule.model_validate(wanted["split"]),
        missing=MissingRule.model_validate(wanted["missing"]),
        rules=rules,
    )


def _plain(before: dict[str, Any], cohort: Cohort) -> dict[str, Any]:
    """Redraft earlier settings, which reveals the fields that were set by hand.

    If the data no longer fit them, return the settings themselves, so that nothing counts as
    set by hand.
    """
    try:
        return settings(_draft_settings(before, cohort))
    except InputError:
        return before


def _own(values: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that differ from the base."""
    return {name: value for name, value in values.items() if value != base[name]}


def _validated(model: type[Any], values: Any, where: str = "") -> Any:
    return validated(model, values, f"the amendment is not valid: {where}")

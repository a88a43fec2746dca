"""Writing a proposal as a complete cohort folder, never over someone else's work."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tomllib
from pathlib import Path
from typing import Any

from sage.core.errors import InputError
from sage_import.intake.proposal import Proposal
from validation.cohort.model import CohortSpec
from validation.core.types import Finding

DOUBTS = (
    "contains_follow_up",
    "grows_with_follow_up",
    "happens_during_follow_up",
    "outcome_proxy",
    "recorded_by_outcome",
)
"""Codes of findings about variables that were probably not known when follow-up began."""
MARK = "# Written by `sage import`"


def publish(proposal: Proposal, folder: Path, *, force: bool = False) -> list[Finding]:
    """Write the cohort folder after reading the cohort back and checking it.

    Raises `InputError` if a guess is open, the folder exists, or the cohort cannot be read
    back.
    """
    from validation.cohort.cohort import Cohort
    from validation.cohort.findings import check_cohort

    proposal.require_answers()
    spec = proposal.spec
    if spec is None:
        raise InputError("no cohort to write")
    _require_free(folder, force=force)
    text = render_toml(proposal)
    if CohortSpec.model_validate(tomllib.loads(text)) != spec:
        raise InputError(
            f"{folder}: the description cannot be read back correctly; please report the column "
            "names in the files"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    stage = folder.parent / f".{folder.name}.{os.getpid()}-{secrets.token_hex(4)}.part"
    try:
        stage.mkdir()
        for name, content in proposal.files.items():
            _write(stage / name, content)
        _write(stage / "cohort.toml", text)
        cohort = Cohort(spec, stage)
        cohort.dictionary()
        findings = check_cohort(cohort)
        if suspects := _find_suspects(spec, findings):
            for name in suspects:
                spec.variables[name] = spec.variables[name].model_copy(
                    update={"known_at": "unknown"}
                )
            _write(stage / "cohort.toml", render_toml(proposal))
            findings = check_cohort(Cohort(spec, stage))
        _replace_folder(stage, folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return findings


def _find_suspects(spec: CohortSpec, findings: list[Finding]) -> list[str]:
    """List variables that a general answer declares as baseline but the check doubts."""
    doubted = {item.where.partition(":")[2] for item in findings if item.code in DOUBTS}
    return [
        name
        for name, variable in spec.variables.items()
        if name in doubted and variable.known_at is None and spec.known_at == "baseline"
    ]


def _require_free(folder: Path, *, force: bool) -> None:
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder}: exists and is not a folder; choose another name")
    if not folder.exists() or not any(folder.iterdir()):
        return
    description = folder / "cohort.toml"
    ours = description.is_file() and description.read_text("utf-8", "replace").startswith(MARK)
    if not ours:
        raise InputError(
            f"{folder}: contains files that were not written by `sage import`; choose another "
            "name, or remove it yourself"
        )
    if not force:
        raise InputError(
            f"{folder}: already exists; use --force to replace it, or --out for another folder"
        )


def _write(path: Path, content: str) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())


def _replace_folder(stage: Path, folder: Path) -> None:
    """Move the staged folder into place, and only then remove the earlier folder."""
    old = stage.with_suffix(".old")
    if folder.exists():
        folder.rename(old)
        try:
            stage.rename(folder)
        except OSError:
            old.rename(folder)
            raise
        shutil.rmtree(old, ignore_errors=True)
    else:
        stage.rename(folder)


def render_toml(proposal: Proposal) -> str:
    """Render the `cohort.toml`, with comments that explain omissions."""
    assert proposal.spec is not None
    raw = proposal.spec.model_dump(mode="json", exclude_defaults=True)
    lines = [f"{MARK}; every value can be edited (docs/cohorts.md)."]
    for column in proposal.columns:
        if column.role == "left out":
            why = column.warning or column.evidence
            lines.append(f"# omitted: {_comment(column.column)} ({_comment(why)})")
    lines += [
        f"# not read: {_comment(loss.what)}, {loss.count} ({_comment(loss.reason)})"
        for loss in proposal.losses
    ]
    plain = {key: value for key, value in raw.items() if not isinstance(value, dict)}
    lines += [f"{key} = {_value(value)}" for key, value in plain.items()]
    lines.append(f"patient = {_value(raw['patient'])}")
    for group in ("tables", "variables", "endpoints"):
        for name, section in raw.get(group, {}).items():
            lines += ["", f"[{group}.{_key(name)}]"]
            if group == "endpoints":
                lines.append(f'kind = "{proposal.spec.endpoints[name].kind}"')
            lines += [
                f"{_key(key)} = {_value(value)}"
                for key, value in section.items()
                if key != "kind" or group != "endpoints"
            ]
    if "expression" in raw:
        lines += ["", "[expression]"]
        lines += [f"{_key(key)} = {_value(value)}" for key, value in raw["expression"].items()]
    return "\n".join(lines) + "\n"


def _comment(text: str) -> str:
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())[:200]


def _key(name: str) -> str:
    plain = name.replace("_", "").replace("-", "")
    return name if plain.isascii() and plain.isalnum() else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return (
            "{ " + ", ".join(f"{_key(key)} = {_value(item)}" for key, item in value.items()) + " }"
        )
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(item) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)

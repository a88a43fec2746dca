"""The run specification, with the same form on the command line, web page, API and manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from agents.core.types import History
from agents.question.types import PartRole, Question
from sage.core.errors import InputError, explain_validation
from sage.core.files import read_json
from sage.core.models import Passage, Strict
from sage.settings import RunOptions, Settings
from validation.contracts.contract import SplitRule


class Corrections(Strict):
    """Changes to the interpretation of a question: parts replaced or dropped, or a whole contract.

    With `yes`, the run starts even if graph, cohort and question are about different
    diseases, or if the cohort cannot represent part of the question.
    """

    replaced: dict[PartRole, tuple[str, ...]] = Field(default_factory=dict)
    dropped: tuple[str, ...] = ()
    edited: Question | None = None
    yes: bool = False


class RunSpec(RunOptions):
    """Everything that defines a run.

    `history` contains the findings of earlier rounds of `campaign`.
    """

    prompt: Passage
    corrections: Corrections = Corrections()
    campaign: str = ""
    history: History | None = None

    @property
    def split_rule(self) -> SplitRule:
        """Rule that the run's contracts use to split patients."""
        if self.split is None:
            return SplitRule()
        return SplitRule(policy="discovery_confirmation", confirmation=self.split)

    def resolve(self) -> RunSpec:
        """Return the spec with absolute paths, so that the run can be resumed from any folder.

        Raises
        ------
        InputError
            If the prompt is empty.
        """
        if not self.prompt.strip():
            raise InputError('the prompt is empty; use: sage run "QUESTION"')
        return self.model_copy(
            update={
                "prompt": self.prompt.strip(),
                "cohort": _resolve_cohort(self.cohort),
                "cohort_root": self.cohort_root and self.cohort_root.resolve(),
                "features": tuple(path.resolve() for path in self.features),
                "kg": self.kg and self.kg.resolve(),
                "corpus": self.corpus and self.corpus.resolve(),
                "replicate": self.replicate and _resolve_cohort(self.replicate),
                "confirm": _resolve_cohort(self.confirm)
                if isinstance(self.confirm, str)
                else self.confirm,
            }
        )


def _resolve_cohort(name: str) -> str:
    """Return the absolute path of a cohort's folder, or a built-in name unchanged."""
    path = Path(name)
    return str(path.resolve()) if path.exists() else name


def make_spec(settings: Settings, file: Path | None = None, **options: Any) -> RunSpec:
    """Merge options over a spec file, and both over the `[run]` table in the settings.

    Parameters
    ----------
    file : JSON file with the fields of a spec, or with a question's contract from `sage ask
        --json`
    options : fields of `RunSpec`; None for options not given

    Raises
    ------
    InputError
        If a field is unknown or invalid, or the file is not readable.
    """
    fields = settings.run.model_dump(exclude_unset=True)
    if file is not None:
        fields |= _read_fields(file)
    corrections = Corrections.model_validate(fields.pop("corrections", {}))
    if options.pop("yes", False):
        corrections = corrections.model_copy(update={"yes": True})
    fields |= {name: value for name, value in options.items() if value is not None}
    fields.setdefault("prompt", "")
    try:
        return RunSpec(corrections=corrections, **fields)
    except ValidationError as error:
        raise InputError(explain_validation(error)) from None


def _read_fields(file: Path) -> dict[str, Any]:
    try:
        found = read_json(file)
    except FileNotFoundError:
        raise InputError(f"--spec: {file} not found; create it with `sage ask … --json`") from None
    except ValueError as error:
        raise InputError(f"--spec {file}: invalid JSON ({error})") from None
    try:
        if "parts" not in found:
            return RunSpec.model_validate({"prompt": "", **found}).model_dump(exclude_unset=True)
        question = Question.model_validate(found)
    except (ValidationError, TypeError) as error:
        reason = explain_validation(error) if isinstance(error, ValidationError) else str(error)
        raise InputError(
            f"--spec {file}: neither a run spec nor a question contract ({reason});"
            " start from `sage ask … --json`"
        ) from None
    return {"prompt": question.prompt, "corrections": {"edited": question}}

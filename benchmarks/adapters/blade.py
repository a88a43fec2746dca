"""BLADE: which variables and which transformations an analysis of a research question may use.

Read are its data sets as published: `info.json` (question, columns and what they mean),
`mcq_dataset.json` (multiple choice) and `annotations.csv` (what experts chose). Two parts of it are
measured: the multiple-choice questions, and the columns that are chosen for the question, with
their roles, against all columns that the experts' conceptual variables rest on. BLADE compares the
concepts by a language model; here columns are compared, so the figures are not those of its paper.
Transformations as programs and statistical models are not measured. No table of data is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_serializer

from agents.analysis_variables import ANALYSIS_VARIABLES, Variables, VariablesInput, words_of
from benchmarks.adapters.multiple_choice import (
    LONGEST,
    Answerer,
    Question,
    Said,
    question,
    require_distinct,
)
from benchmarks.adapters.triple_review import Figure, proportion
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import one_line

if TYPE_CHECKING:
    from agents.base import Reasoner

Role = Literal["DV", "IV", "Control"]
ROLES: tuple[Role, ...] = get_args(Role)
NONE: frozenset[str] = frozenset()
DERIVED = "🟩"
"""What stands before a derived column's name."""
MOST_COLUMNS = 500


class _Published(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Option(_Published):
    cvar_str: str | None = None
    code: str | None = None

    @property
    def words(self) -> str:
        return self.cvar_str or self.code or ""


class _Choice(_Published):
    mc_type: Literal["select_pos", "select_neg"]
    options: tuple[_Option, ...]
    correct_answer: _Option


class _Choices(_Published):
    mcqs_cvar: tuple[_Choice, ...] = ()
    mcqs_transform: dict[str, tuple[_Choice, ...]] = Field(default_factory=dict)


class _Concept(_Published):
    variable_type: Role
    final_columns_orig: tuple[str, ...] | None = ()
    final_columns_derived: tuple[str, ...] | None = ()
    is_negative: bool | None = False


class _Transform(_Published):
    input_cols_to_output_col_mapping: tuple[tuple[tuple[str, ...], str | None], ...] | None = ()
    is_negative: bool | None = False


class Asked(Strict):
    """A multiple-choice question, the concept that it is about, and whether the most fits."""

    question: Question
    concept: str
    most: bool


class DataSet(Strict):
    """One data set: its question, its columns, its choices, and the experts' columns by role."""

    name: str
    question: str
    description: str
    columns: dict[str, str]
    asked: tuple[Asked, ...] = ()
    gold: dict[Role, frozenset[str]] = Field(default_factory=dict)


class Chosen(Strict):
    """What was chosen for a data set; `trouble` where no reply could be used."""

    name: str
    roles: dict[Role, frozenset[str]] = Field(default_factory=dict)
    trouble: str = ""

    @field_serializer("roles")
    def _in_one_order(self, roles: dict[Role, frozenset[str]]) -> dict[Role, list[str]]:
        return {role: sorted(names) for role, names in roles.items()}


class Matched(Strict):
    """Figures over all data sets. The floor's F1 is what as many columns at random reach."""

    precision: Figure | None
    recall: Figure
    f1: float
    floor_f1: float


class VariablesScored(Strict):
    """Columns whatever their role, and columns in their roles."""

    datasets: int
    columns: Matched
    roles: Matched
    unusable: int


def read_datasets(folder: Path) -> list[DataSet]:
    """The data sets of BLADE's folder `datasets`, or of one of its folders.

    Raises
    ------
    InputError
        If none of them has multiple-choice questions or annotations, or a file is not BLADE's.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is no folder; give BLADE's folder of data sets")
    places = [folder] if (folder / "info.json").is_file() else sorted(folder.iterdir())
    found = [_dataset(place) for place in places if (place / "info.json").is_file()]
    kept = [item for item in found if item.asked or item.gold]
    if not kept:
        raise InputError(
            f"{folder}: no folder in it has an info.json with an mcq_dataset.json or an"
            " annotations.csv beside it; give BLADE's folder of data sets"
        )
    if asked := [one.question for item in kept for one in item.asked]:
        require_distinct(asked, str(folder))
    return kept


def _dataset(place: Path) -> DataSet:
    path = place / "info.json"
    held = _json(path)
    try:
        fields = held["data_desc"]["fields"]
        columns = {
            field["column"]: one_line(str(field["properties"].get("description") or ""))
            for field in fields
        }
        text = held["research_questions"][0]
        about = held["data_desc"].get("dataset_description") or ""
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        said = f"field {error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path}: not as BLADE has it ({said})") from None
    if not all(isinstance(item, str) and item.strip() for item in (text, *columns)):
        raise InputError(f"{path}: the research question or a column's name is no text")
    if not 2 <= len(columns) <= MOST_COLUMNS or len(columns) < len(fields):
        raise InputError(f"{path}: has {len(columns)} distinct columns; 2 to {MOST_COLUMNS} of one"
                         " name each can be asked about")  # fmt: skip
    size = len(text) + len(str(about)) + sum(len(n) + len(said) for n, said in columns.items())
    if size > LONGEST:
        raise InputError(f"{path}: its text has {size:,} characters; at most {LONGEST:,}")
    item = DataSet(name=one_line(place.name), question=text, description=one_line(str(about)),
                   columns=columns)  # fmt: skip
    return item.model_copy(update={
        "asked": _asked(place / "mcq_dataset.json", item),
        "gold": _gold(place / "annotations.csv", frozenset(columns)),
    })  # fmt: skip


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read ({str(error).splitlines()[0][:200]})") from None


def _asked(path: Path, item: DataSet) -> tuple[Asked, ...]:
    if not path.is_file():
        return ()
    try:
        held = _Choices.model_validate(_json(path))
    except ValidationError as error:
        raise InputError(f"{path}: not as BLADE has it ({_first(error)})") from None
    material = "\n".join(
        (f"Research question: {item.question}", f"Data: {item.description}", "Columns:",
         *(f"- {name}: {said}" for name, said in item.columns.items()))
    )  # fmt: skip
    out = []
    for kind, concept, number, choice in (
        *(("variables", "", n, one) for n, one in enumerate(held.mcqs_cvar, 1)),
        *(("transformations", concept, n, one)
          for concept, group in held.mcqs_transform.items() for n, one in enumerate(group, 1)),
    ):  # fmt: skip
        most = choice.mc_type == "select_pos"
        where = f"{path}, {kind} {f'of {concept!r} ' * bool(concept)}{number}"[:300]
        about = f"code to make the variable {concept!r}" if concept else "conceptual variable"
        if choice.correct_answer not in choice.options:
            raise InputError(f"{where}: its correct answer is none of its options")
        made = question(
            where, id=f"{item.name}/{kind}/{f'{concept[:80]}/' * bool(concept)}{number}",
            group=kind, material=material, right=choice.correct_answer.words,
            text=f"Which {about} is the {'most' if most else 'least'} justifiable in an analysis of"
            " the research question?",
            wrong=[option.words for option in choice.options],
        )  # fmt: skip
        out.append(Asked(question=made, concept=concept, most=most))
    return tuple(out)


def _gold(path: Path, columns: frozenset[str]) -> dict[Role, frozenset[str]]:
    """The columns of the experts' conceptual variables, derived ones by those they come from."""
    if not path.is_file():
        return {}
    try:
        table = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: is no table ({str(error).splitlines()[0][:200]})") from None
    if "conceptual_spec_json" not in table:
        raise InputError(f"{path}: has no column conceptual_spec_json, as BLADE's annotations have")
    made: dict[str, set[str]] = {}
    for transform in _specs(path, table, "transform_spec_json", _Transform):
        for inputs, output in transform.input_cols_to_output_col_mapping or ():
            if output and not transform.is_negative:
                made.setdefault(_plain(output), set()).update(map(_plain, inputs))
    gold: dict[Role, set[str]] = {}
    for concept in _specs(path, table, "conceptual_spec_json", _Concept):
        if not concept.is_negative:
            named = {*(concept.final_columns_orig or ()), *(concept.final_columns_derived or ())}
            found = {origin for name in named for origin in _origins(_plain(name), made, columns)}
            gold.setdefault(concept.variable_type, set()).update(found)
    return {role: frozenset(names) for role, names in gold.items() if names}


def _specs(path: Path, table: pd.DataFrame, column: str, kind: type[Any]) -> list[Any]:
    out = []
    for number, cell in enumerate(table.get(column, ()), 1):
        if cell.strip():
            try:
                out.append(kind.model_validate(json.loads(cell)))
            except (ValidationError, ValueError, RecursionError) as error:
                said = _first(error) if isinstance(error, ValidationError) else str(error)[:200]
                raise InputError(
                    f"{path}, row {number}: {column} is not BLADE's ({said})"
                ) from None
    return out


def _origins(name: str, made: dict[str, set[str]], columns: frozenset[str]) -> set[str]:
    found, seen, left = set(), set[str](), [name]
    while left:
        one = left.pop()
        if one in columns:
            found.add(one)
        elif one not in seen:
            seen.add(one)
            left += made.get(one, ())
    return found


def _plain(name: str) -> str:
    return name.removeprefix(DERIVED).strip()


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:200]


def by_words(datasets: Sequence[DataSet]) -> Answerer:
    """Answers by words: a concept fits that question and columns say most of.

    Code fits a concept whose words the columns that it names say. Where two options fit alike
    best, the rule abstains.
    """
    known = {one.question.id: (item, one) for item in datasets for one in item.asked}

    def answer(item: Question, options: dict[str, str]) -> Said:
        held, one = known[item.id]
        fits = {letter: _fit(held, one.concept, words) for letter, words in options.items()}
        best = (max if one.most else min)(fits.values())
        letters = [letter for letter, fit in fits.items() if fit == best]
        return Said(letter=letters[0] if len(letters) == 1 else "")

    return answer


def _fit(item: DataSet, concept: str, option: str) -> float:
    if not concept:
        asked, texts = words_of(option), [item.question, *item.columns, *item.columns.values()]
    else:
        asked = words_of(concept)
        named = [n for n in item.columns if re.search(rf"(?<!\w){re.escape(n)}(?!\w)", option)]
        texts = [f"{name} {item.columns[name]}" for name in named]
    said = words_of(" ".join(texts))
    return len(asked & said) / len(asked) if asked else 0.0


def choose(item: DataSet, reasoner: Reasoner) -> Chosen:
    """The columns that a reasoner chooses for a data set's question."""
    from sage.core.llm.turns import BoundError, UnusableError

    given = VariablesInput(question=item.question, description=item.description,
                           columns=item.columns)  # fmt: skip
    try:
        reply = reasoner.ask(ANALYSIS_VARIABLES, given)
    except (UnusableError, BoundError) as error:
        return Chosen(name=item.name, trouble=one_line(str(error))[:300])
    return Chosen(name=item.name, roles=_roles(reply.output))


def _roles(chosen: Variables) -> dict[Role, frozenset[str]]:
    return {"DV": frozenset((chosen.outcome,)), "IV": frozenset(chosen.exposures),
            "Control": frozenset(chosen.covariates)}  # fmt: skip


def score_variables(datasets: Sequence[DataSet], chosen: Sequence[Chosen]) -> VariablesScored:
    """Chosen columns against the experts', with Wilson's 95% intervals; F1 has none.

    Parameters
    ----------
    datasets : those with annotations
    chosen : what was chosen for each, in the same order
    """
    columns, roles = [], []
    for item, said in zip(datasets, chosen, strict=True):
        mine, theirs = (frozenset[str]().union(*held.values()) for held in (said.roles, item.gold))
        columns.append((mine, theirs, len(item.columns)))
        for role in ROLES:
            one, other = said.roles.get(role, NONE), item.gold.get(role, NONE)
            roles.append((one, other, len(item.columns)))
    return VariablesScored(
        datasets=len(datasets),
        columns=_matched(columns),
        roles=_matched(roles),
        unusable=sum(bool(item.trouble) for item in chosen),
    )


def _matched(sides: Sequence[tuple[frozenset[str], frozenset[str], int]]) -> Matched:
    """Figures of what was said, what is right, and among how many columns."""
    said, gold = sum(len(mine) for mine, _, _ in sides), sum(len(side[1]) for side in sides)
    hits = sum(len(mine & theirs) for mine, theirs, _ in sides)
    chance = sum(len(mine) * len(theirs) / n for mine, theirs, n in sides)
    return Matched(
        precision=proportion(n < hits for n in range(said)) if said else None,
        recall=proportion(n < hits for n in range(gold)),
        f1=round(2 * hits / (said + gold), 6),
        floor_f1=round(2 * chance / (said + gold), 6),
    )

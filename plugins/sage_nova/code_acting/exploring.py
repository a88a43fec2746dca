"""Exploring a cohort: the code-acting agent with the appendix for its only eye.

Programs read patients' rows in the sandbox. What goes back to the model is what a person would be
shown in the quarantined appendix (`agents.coding.appendix`: small tables, counts below the minimum
withheld, the others rounded), and of an error its kind and line (`agents.coding.scrub`): no print,
no value, no name of a file. What was looked at is spent: a claim on it in these patients is
exploratory from then on.

A program can still write a patient's value as an estimate, or choose a label, a line or a moment by
it. `MOST_SHOWN` bounds what a session can carry so.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.base import Agent, Role, View, prompt_file
from agents.coding.accept import ENDINGS
from agents.coding.appendix import (
    TITLE,
    Appendix,
    Table,
    judges,
    numbers_of,
    read_appendix,
    round_count,
)
from agents.coding.scrub import WITHHELD, describe_failure
from sage.core.files import write_bytes
from sage_nova.code_acting.agent import Manner, answer_problems, no_answer
from sage_nova.code_acting.session import IMPORTS, Session
from sage_nova.code_acting.types import Acted, CodeAnswer, Observation
from sandbox.types import SandboxResult

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort
    from validation.core.dictionary import Endpoint
    from validation.screening.look import Look

TABLE, GENES = "table.parquet", "expression.parquet"
BY_PERSON = TITLE.replace("a model", "a person")
MOST_SHOWN = 2000
"""Labels and numbers of all tables of a session."""
_MORE = (
    "Counts are rounded. It entered no verdict, no interpretation and no summary. Not for decisions"
    " about patients."
)


class Measured(View):
    """A variable as a model sees it, with rounded counts. `levels` counts categories, small ones
    left out; `n` is None where fewer patients than the minimum have it.
    """

    key: str
    label: str
    kind: str
    unit: str | None
    n: int | None
    late: bool
    levels: dict[str, int]


class Outcome(View):
    """An outcome that was mounted, with its columns in the table; small counts are None."""

    columns: tuple[str, ...]
    label: str
    kind: str
    n: int | None
    events: int | None


class Exploring(View):
    """The question, and what may be known of the cohort before anything is computed."""

    question: str
    cohort: str
    simulated: bool
    patients: int
    variables: tuple[Measured, ...]
    outcomes: tuple[Outcome, ...]
    genes: int
    imports: tuple[str, ...]
    steps: int
    seconds: float
    min_count: int
    most_shown: int = MOST_SHOWN


class Exploration(View):
    """An exploration as a report shows it: the question, the answer, and the appendix behind it.

    `looked` says what was looked at, and in which outcomes it is spent.
    """

    title: str
    question: str
    answer: str
    looked: str
    statement: str
    appendix: Appendix


EXPLORER = Agent(
    name="explorer", role=Role.HIGH, reads=Exploring, returns=CodeAnswer,
    prompt=prompt_file(__file__, "explore.md"), rule=no_answer,
)  # fmt: skip


def problems(question: str, seen: Sequence[Observation], output: CodeAnswer) -> list[str]:
    """Why an answer is not acceptable: numbers of no table, words that belong to a verdict."""
    found = answer_problems(question, seen, output)
    if word := judges(f"{output.answer or ''} {output.reason}"):
        found.append(f'answer: "{word}" judges, which an exploration cannot; say what was seen')
    return found


def exploring(cohort: Cohort, look: Look, min_count: int) -> Manner:
    """How the loop is asked about a cohort of which `look` is mounted."""
    dictionary = cohort.dictionary()
    variables = {one.key: one for one in dictionary.variables}

    def given(session: Session, question: str, steps: int) -> Exploring:
        return Exploring(
            question=question, cohort=dictionary.title, simulated=dictionary.simulated,
            patients=dictionary.n_patients,
            variables=tuple(
                Measured(
                    key=key, label=one.label, kind=one.kind, unit=one.unit,
                    n=_shown(one.n, min_count), late=one.late,
                    levels={
                        name: round_count(n, min_count)
                        for name, n in one.levels.items()
                        if n >= min_count
                    },
                )
                if (one := variables.get(key)) is not None
                else Measured(
                    key=key, label=key, kind="continuous", unit=None,
                    n=_shown(dictionary.expression_n, min_count), late=False, levels={},
                )
                for key in look.variables
            ),
            outcomes=tuple(
                _outcome(one, min_count)
                for one in dictionary.endpoints
                if one.key in look.endpoints
            ),
            genes=len(look.genes), imports=tuple(sorted(IMPORTS)), steps=steps,
            seconds=session.limits.seconds, min_count=min_count,
        )  # fmt: skip

    return Manner(EXPLORER, given, problems, f"{TITLE}. {_MORE}", f"{BY_PERSON}. {_MORE}")


def _shown(count: int | None, minimum: int) -> int | None:
    """A count rounded as the tables' are: exact ones, subtracted, give small groups away."""
    if count is None or 0 < count < minimum:
        return None
    return round_count(count, minimum)


def _outcome(one: Endpoint, minimum: int) -> Outcome:
    timed = one.kind in ("survival", "competing")
    parts = ("time", "event") if timed else ("value",)
    return Outcome(
        columns=tuple(f"{one.key}.{part}" for part in parts), label=one.label, kind=one.kind,
        n=_shown(one.n, minimum), events=_shown(one.events, minimum),
    )  # fmt: skip


@dataclass
class Tables:
    """An exploration's eye: the appendix as it is shown to people, and where an error arose.

    Parameters
    ----------
    numbers : (patients, columns) what the programs read, for values that few patients have
    names : of variables and genes, which may be labels
    min_count : fewest patients that a shown count may have
    """

    numbers: NDArray[np.float64]
    names: frozenset[str]
    min_count: int
    images: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    left: int = MOST_SHOWN

    @classmethod
    def of(cls, inputs: Mapping[str, Path], look: Look, min_count: int) -> Tables:
        """The eye on what is mounted."""
        import numpy as np

        numbers = np.column_stack([numbers_of(path) for path in inputs.values()])
        return cls(numbers, frozenset((*look.variables, *look.genes)), min_count)

    def see(
        self, steps: Sequence[tuple[int, str]], said: Mapping[str, Any], out: Path, files: Path
    ) -> dict[str, Any]:
        """See `Eye.see`. What the programs wrote is removed; images that were drawn again stay."""
        number, code = steps[-1]
        stderr = str(said.get("error", ""))
        lines = describe_failure(stderr, "", code, f"step_{number}")
        error = "\n".join(line for line in lines if line != WITHHELD)
        if stderr and not error:
            error = "an error of its own"
        programs = "\n".join(code for _, code in steps)
        found = read_appendix(
            out, programs, self.numbers, self.min_count, self.names, for_model=True
        )
        shutil.rmtree(out)
        tables, left_out = self._affordable(found.tables)
        for image in found.images:
            digest = hashlib.sha256(image).hexdigest()
            if digest not in self.images:
                self.images[digest] = f"image-{len(self.images) + 1}.png"
                write_bytes(files / self.images[digest], image)
        return {"error": error, "tables": tables, "left_out": found.refused + left_out}

    def _affordable(self, tables: Sequence[Table]) -> tuple[tuple[Table, ...], tuple[str, ...]]:
        """Tables that were not shown before, as far as the session may show more."""
        new: list[Table] = []
        left_out: tuple[str, ...] = ()
        for one in tables:
            if (whole := one.model_dump_json()) in self.shown:
                continue
            size = (len(one.columns) + 1) * (len(one.rows) + 1)
            if size > self.left:
                left_out = (f"a table beyond the {MOST_SHOWN} labels and numbers of a session",)
                continue
            self.left -= size
            self.shown.add(whole)
            new.append(one)
        return tuple(new), left_out

    def failed(self, ended: SandboxResult) -> str:
        """See `Eye.failed`."""
        return ENDINGS.get(ended.reason) or "it left no result"


def mount(cohort: Cohort, look: Look, folder: Path) -> dict[str, Path]:
    """Write what is looked at below `folder`, without identifiers; the files by their names."""
    import pandas as pd

    folder.mkdir(parents=True, exist_ok=True)
    table = cohort.table(look.variables, look.endpoints)
    paths = {TABLE: folder / TABLE}
    table.reset_index(drop=True).to_parquet(paths[TABLE])
    if look.genes and cohort.expression is not None:
        values, patients = cohort.block(cohort.expression.genes)
        genes = pd.DataFrame(values, index=patients, columns=list(look.genes)).reindex(table.index)
        paths[GENES] = folder / GENES
        genes.reset_index(drop=True).to_parquet(paths[GENES])
    return paths


def explored(acted: Acted, looked: str) -> Exploration:
    """The record of a session as a report shows it."""
    answer = acted.answer
    said = (answer and answer.answer) or f"No answer: {answer.reason if answer else acted.error}"
    tables, left_out, images = [], [], []
    for done in acted.steps:
        seen = done.observation
        at = f"step {seen.step}: "
        tables += [one.model_copy(update={"name": at + one.name}) for one in seen.tables]
        left_out += [f"{at}{why}" for why in seen.left_out]
        images += [name for name in seen.files if name not in images]
    code = "\n".join(done.cell.code for done in acted.steps)
    return Exploration(
        title=TITLE if acted.by == "model" else BY_PERSON,
        question=acted.question, answer=said, looked=looked, statement=acted.statement,
        appendix=Appendix(
            part="all", program_sha256=hashlib.sha256(code.encode()).hexdigest(),
            tables=tuple(tables), images=tuple(images), refused=tuple(left_out),
        ),
    )  # fmt: skip

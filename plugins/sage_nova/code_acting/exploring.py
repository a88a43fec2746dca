"""Exploration of a cohort by the code-acting agent, which sees only appendix tables.

Programs read patients' rows in the sandbox. The model receives the contents of the
quarantined appendix (`agents.coding.appendix`: small tables, with counts below the
minimum withheld and others rounded) and the kind and line of an error
(`agents.coding.scrub`), but no printed text, value, or file name. Once an outcome has
been examined, claims about it in these patients are exploratory.

A program can still write a patient's value as an estimate, or use it to choose a label, a
line, or a moment. `most_shown` limits the information that a session can carry this way.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents.coding.accept import ENDINGS
from agents.coding.appendix import (
    TITLE,
    Appendix,
    Table,
    judges,
    numbers_of,
    read_appendix,
)
from agents.coding.scrub import WITHHELD, describe_failure
from agents.core.base import Agent, Role, View, prompt_file
from sage.core.files import write_bytes
from sage.report.exploration import Exploration
from sage_nova.code_acting.agent import AgentTask, abstain, check_answer
from sage_nova.code_acting.session import IMPORTS, Session, StepView
from sage_nova.code_acting.types import Acted, CodeAnswer, Observation
from sandbox.types import SandboxResult
from validation.disclosure import round_count

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from validation.cohort.cohort import Cohort
    from validation.core.dictionary import Endpoint, Variable
    from validation.screening.look import Look

TABLE, GENES = "table.parquet", "expression.parquet"
BY_PERSON = TITLE.replace("a model", "a person")
MAX_SHOWN = 2000
"""Maximum number of labels and numbers in all of a session's tables."""
_MORE = (
    "Counts are rounded. These results were not used in any verdict, interpretation or summary. "
    "Not for decisions about patients."
)


class Exploring(View):
    """Model input for an exploration: the question and the cohort's data dictionary."""

    question: str
    cohort: str
    simulated: bool
    patients: int
    variables: tuple[str, ...]
    outcomes: tuple[str, ...]
    genes: int
    imports: tuple[str, ...]
    steps: int
    seconds: float
    min_count: int
    most_shown: int


EXPLORER = Agent(
    name="explorer", role=Role.HIGH, reads=Exploring, returns=CodeAnswer,
    prompt=prompt_file(__file__, "explore.md"), rule=abstain,
)  # fmt: skip


def most_shown(patients: int) -> int:
    """Return the maximum number of labels and numbers in a session: at most half the patients.

    No complete column of patients' values can leave the sandbox, in any order.
    """
    return min(MAX_SHOWN, patients // 2)


def check_exploration(question: str, seen: Sequence[Observation], output: CodeAnswer) -> list[str]:
    """List an answer's problems: numbers not in any table, or words reserved for verdicts."""
    found = check_answer(question, seen, output)
    if word := judges(f"{output.answer or ''} {output.reason}"):
        found.append(
            f'answer: "{word}" is a judgment, which an exploration cannot make; describe the '
            "observation"
        )
    return found


def make_task(cohort: Cohort, look: Look, min_count: int) -> AgentTask:
    """Make the task for exploring a cohort on which `look` is mounted."""
    dictionary = cohort.dictionary()
    variables = {variable.key: variable for variable in dictionary.variables}

    def build_input(session: Session, question: str, steps: int) -> Exploring:
        shown = round_count(dictionary.expression_n, min_count)
        return Exploring(
            question=question, cohort=dictionary.title, simulated=dictionary.simulated,
            patients=dictionary.n_patients,
            variables=tuple(
                describe_variable(variables[key], min_count) if key in variables
                else f"{key}: continuous, {_count(shown)} patients"
                for key in look.variables
            ),
            outcomes=tuple(
                describe_outcome(endpoint, min_count)
                for endpoint in dictionary.endpoints if endpoint.key in look.endpoints
            ),
            genes=len(look.genes), imports=tuple(sorted(IMPORTS)), steps=steps,
            seconds=session.limits.seconds, min_count=min_count,
            most_shown=most_shown(dictionary.n_patients),
        )  # fmt: skip

    return AgentTask(
        EXPLORER, build_input, check_exploration, f"{TITLE}. {_MORE}", f"{BY_PERSON}. {_MORE}"
    )


def _count(shown: int | None) -> str:
    return "too few" if shown is None else str(shown)


def describe_variable(variable: Variable, minimum: int) -> str:
    """Describe a variable with rounded counts and without small categories."""
    n = f"{_count(round_count(variable.n, minimum))} patients"
    late = "known after the start of follow-up" if variable.late else None
    parts = (variable.label, variable.kind, variable.unit, n, late)
    text = f"{variable.key}: {', '.join(part for part in parts if part)}"
    counts = {name: round_count(count, minimum) for name, count in variable.levels.items()}
    levels = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    return f"{text}; levels {levels}" if levels else text


def describe_outcome(endpoint: Endpoint, minimum: int) -> str:
    """Describe a mounted outcome with its columns in the table and rounded counts."""
    codes = {
        "survival": ", event 1, censored 0",
        "competing": ", event 1, censored 0, competing event 2",
    }.get(endpoint.kind)  # fmt: skip
    columns = ", ".join(
        f"{endpoint.key}.{part}" for part in (("time", "event") if codes else ("value",))
    )
    coding = f" (time in months{codes})" if codes else ""
    n, events = round_count(endpoint.n, minimum), round_count(endpoint.events, minimum)
    text = f"{columns}: outcome {endpoint.label}, {endpoint.kind}{coding}, {_count(n)} patients"
    return text if events is None else f"{text}, {events} events"


@dataclass
class Tables(StepView):
    """View of an exploration: the appendix as shown to people, and error locations.

    Parameters
    ----------
    numbers : (patients, columns) inputs of the programs, used to find values shared by few
        patients
    names : variables and genes, which may be labels
    min_count : fewest patients that a shown count may have
    """

    numbers: NDArray[np.float64]
    names: frozenset[str]
    min_count: int
    images: dict[str, str] = field(default_factory=dict)
    shown: set[str] = field(default_factory=set)
    left: int = 0

    @classmethod
    def from_inputs(cls, inputs: Mapping[str, Path], look: Look, min_count: int) -> Tables:
        """Make the view from inputs that are already mounted."""
        import numpy as np

        numbers = np.column_stack([numbers_of(path) for path in inputs.values()])
        names = frozenset((*look.variables, *look.genes))
        return cls(numbers, names, min_count, left=most_shown(len(numbers)))

    def observe(
        self, steps: Sequence[tuple[int, str]], output: Mapping[str, Any], out: Path, files: Path
    ) -> dict[str, Any]:
        """See `StepView.observe`. Files from programs are removed; redrawn images are kept."""
        number, code = steps[-1]
        stderr = str(output.get("error", ""))
        lines = describe_failure(stderr, "", code, f"step_{number}")
        error = "\n".join(line for line in lines if line != WITHHELD)
        if stderr and not error:
            error = "an error"
        programs = "\n".join(code for _, code in steps)
        found = read_appendix(
            out, programs, self.numbers, self.min_count, self.names, for_model=True
        )
        shutil.rmtree(out)
        tables, left_out = self._select_tables(found.tables)
        for image in found.images:
            digest = hashlib.sha256(image).hexdigest()
            if digest not in self.images:
                self.images[digest] = f"image-{len(self.images) + 1}.png"
                write_bytes(files / self.images[digest], image)
        return {"error": error, "tables": tables, "left_out": found.refused + left_out}

    def _select_tables(self, tables: Sequence[Table]) -> tuple[tuple[Table, ...], tuple[str, ...]]:
        """Select tables not shown before, within the session's remaining limit."""
        new: list[Table] = []
        left_out: tuple[str, ...] = ()
        for table in tables:
            if (whole := table.model_dump_json()) in self.shown:
                continue
            size = (len(table.columns) + 1) * (len(table.rows) + 1)
            if size > self.left:
                most = most_shown(len(self.numbers))
                left_out = (f"a table beyond the {most} labels and numbers of a session",)
                continue
            self.left -= size
            self.shown.add(whole)
            new.append(table)
        return tuple(new), left_out

    def describe_failure(self, ended: SandboxResult) -> str:
        """See `StepView.describe_failure`."""
        return ENDINGS.get(ended.reason) or "it wrote no result"


def write_inputs(cohort: Cohort, look: Look, folder: Path) -> dict[str, Path]:
    """Write the requested columns, without patient identifiers, to `folder`.

    Returns the files by name.
    """
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


def build_exploration(record: Acted, looked: str) -> Exploration:
    """Build a report's exploration section from a session's record."""
    answer = record.answer
    text = (answer and answer.answer) or f"No answer: {answer.reason if answer else record.error}"
    tables, left_out, images = [], [], []
    for done in record.steps:
        seen = done.observation
        at = f"step {seen.step}: "
        tables += [table.model_copy(update={"name": at + table.name}) for table in seen.tables]
        left_out += [f"{at}{why}" for why in seen.left_out]
        images += [name for name in seen.files if name not in images]
    code = "\n".join(done.cell.code for done in record.steps)
    return Exploration(
        title=TITLE if record.by == "model" else BY_PERSON,
        question=record.question, answer=text, looked=looked, statement=record.statement,
        appendix=Appendix(
            part="all", program_sha256=hashlib.sha256(code.encode()).hexdigest(),
            tables=tuple(tables), images=tuple(images), refused=tuple(left_out),
        ),
    )  # fmt: skip

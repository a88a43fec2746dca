"""Multiple-choice questions with abstention: laid out by a seed, asked, and scored.

Accuracy is the share of all questions that are right, coverage the share that is answered,
precision the share of the answered ones that is right (LAB-Bench's three figures). Beside them
stands what choosing at random reaches. Results hold no text of a question: benchmarks carry canary
strings so that their questions are not copied about.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from benchmarks.adapters.triple_review import Figure, proportion
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.printable import one_line
from sage.core.seeds import generator

if TYPE_CHECKING:
    from agents.base import Reasoner

PURPOSE = 83
REFUSAL = "Insufficient information to answer the question"
"""The option that declines, in LAB-Bench's words."""
LONGEST = 100_000
"""Characters of a question with its material and options; a longer text is damaged."""


class Question(Strict):
    """A question with its right and its wrong answers. `declines` adds the option that declines."""

    id: str
    group: str
    text: str
    material: str = ""
    right: str
    wrong: tuple[str, ...]
    declines: bool = False


class Said(Strict):
    """A letter, none where the answer was withheld; `trouble` where no reply could be used."""

    letter: str = ""
    trouble: str = ""


class Answered(Strict):
    """What was said to a question, without its text. `chance` is that of choosing at random."""

    id: str
    group: str
    letter: str
    right: bool
    sure: bool
    chance: float
    trouble: str = ""


class Scored(Strict):
    """Figures of a group, with Wilson's 95% intervals. No usable reply is a wrong answer."""

    group: str
    questions: int
    accuracy: Figure
    precision: Figure | None
    coverage: Figure
    chance: float
    unusable: int


Answerer = Callable[[Question, dict[str, str]], Said]


def question(
    where: str,
    *,
    id: str,
    group: str,
    text: str,
    right: str,
    wrong: Iterable[str],
    material: str = "",
    declines: bool = False,
) -> Question:
    """A question that can be asked; a wrong answer that repeats another answer is left out.

    Parameters
    ----------
    where : file and row, for messages
    id : of the question, alone of its kind
    group : under which it is scored
    text : the question
    right : its right answer
    wrong : its wrong ones
    material : what stands beside it, a protocol say
    declines : whether an option declines to answer

    Raises
    ------
    InputError
        If a text is empty or far too long, or there are not two to 25 answers.
    """
    others = [
        answer for answer in dict.fromkeys(wrong)
        if answer != right and not (declines and answer == REFUSAL)
    ]  # fmt: skip
    if blank := [
        name
        for name, words in (("id", id), ("question", text), ("the right answer", right),
                            *(("a wrong answer", answer) for answer in others))
        if not words.strip()
    ]:  # fmt: skip
        raise InputError(f"{where}: {blank[0]} is empty")
    count = len(others) + 1
    if not 2 <= count < len(string.ascii_uppercase):
        raise InputError(f"{where}: has {count} answer{'s' * (count > 1)}; two to 25 can be asked")
    size = len(text) + len(material) + len(right) + sum(map(len, others))
    if size > LONGEST or len(id) > 200:
        raise InputError(f"{where}: its text has {size:,} characters; at most {LONGEST:,}")
    return Question(
        id=one_line(id), group=one_line(group), text=text, material=material, right=right,
        wrong=tuple(others), declines=declines,
    )  # fmt: skip


def require_distinct(questions: Sequence[Question], what: str) -> None:
    """Refuse questions of which two have one id, and none at all."""
    if not questions:
        raise InputError(f"{what}: holds no question that can be asked")
    seen: set[str] = set()
    for item in questions:
        if item.id in seen:
            raise InputError(f"{what}: two questions have the id {item.id!r}; give each file once")
        seen.add(item.id)


def lay_out(item: Question, seed: int) -> dict[str, str]:
    """The options by letter, in an order of the seed and the question's id alone."""
    options = [item.right, *item.wrong, *((REFUSAL,) if item.declines else ())]
    own = int.from_bytes(hashlib.sha256(item.id.encode("utf-8", "replace")).digest()[:4])
    order = generator(seed, PURPOSE, own).permutation(len(options))
    return {string.ascii_uppercase[n]: options[place] for n, place in enumerate(order)}


def by_reasoner(reasoner: Reasoner) -> Answerer:
    """Answers of the agent `multiple_choice`, by a model or by its rule."""
    from agents.multiple_choice import MULTIPLE_CHOICE, ChoiceInput, chosen
    from sage.core.llm.turns import BoundError, UnusableError

    def answer(item: Question, options: dict[str, str]) -> Said:
        refusal = next((letter for letter, words in options.items() if words == REFUSAL), "")
        given = ChoiceInput(question=item.text, material=item.material, options=options,
                            refusal=refusal if item.declines else "")  # fmt: skip
        try:
            reply = reasoner.ask(MULTIPLE_CHOICE, given)
        except (UnusableError, BoundError) as error:
            return Said(trouble=one_line(str(error))[:300])
        return Said(letter=chosen(reply.output.answer, options) or "")

    return answer


def answer_all(
    questions: Sequence[Question],
    answer: Answerer,
    seed: int,
    *,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[Answered]:
    """Ask every question once.

    Parameters
    ----------
    questions : to be asked
    answer : who answers; it does not see which option is right
    seed : of the order of the options
    progress : told how many of how many are done
    """
    out = []
    for done, item in enumerate(questions):
        progress(done, len(questions))
        options = lay_out(item, seed)
        said = answer(item.model_copy(update={"right": "", "wrong": ()}), options)
        words = options.get(said.letter)
        out.append(
            Answered(
                id=item.id, group=item.group, letter=said.letter, right=words == item.right,
                sure=bool(said.trouble) or words not in (None, *([REFUSAL] * item.declines)),
                chance=1 / (1 + len(item.wrong)), trouble=said.trouble,
            )
        )  # fmt: skip
    progress(len(questions), len(questions))
    return out


def score(answered: Sequence[Answered]) -> list[Scored]:
    """Figures over all questions, then of each group where there are several."""
    groups = list(dict.fromkeys(item.group for item in answered))
    out = [_scored("all", answered)]
    if len(groups) > 1:
        out += [_scored(name, [i for i in answered if i.group == name]) for name in groups]
    return out


def _scored(group: str, answered: Sequence[Answered]) -> Scored:
    sure = [item.right for item in answered if item.sure]
    return Scored(
        group=group,
        questions=len(answered),
        accuracy=proportion(item.right for item in answered),
        precision=proportion(sure) if sure else None,
        coverage=proportion(item.sure for item in answered),
        chance=round(sum(item.chance for item in answered) / len(answered), 6),
        unusable=sum(bool(item.trouble) for item in answered),
    )

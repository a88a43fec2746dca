"""The board over one real patient: what the files state, each sentence with its passage, no advice.

Source: the environment of MTBBench (2.3), put to use.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from pydantic import Field

from agents.base import Agent, Reasoner, Reply, Resources, Role, View, prompt_file
from sage.core.errors import FaultError
from sage.core.llm.turns import Bounds, Moves, Use
from sage.core.printable import amount
from sage_tumor_board.board.advice import gives_advice, only_tells, other_language
from sage_tumor_board.board.agent import TURNS, ask_board
from sage_tumor_board.board.board import Board, Files, OneFile
from sage_tumor_board.board.rules import findings
from sage_tumor_board.board.rules.blood import asks_a_value, is_table, rows
from sage_tumor_board.board.rules.policy import TURNS as RULE_TURNS
from sage_tumor_board.board.rules.sayings import SAYS
from sage_tumor_board.board.types import Cited, letter_of

MOST_SENTENCES = 40
_REFUSED = (
    "tell in plain English what is, was done or was planned; no advice, no question, nothing that"
    " is needed or would be done"
)


class MdtInput(View):
    """The question, and the names of the files that are known by now."""

    question: str
    options: dict[str, str]
    files: tuple[str, ...]
    as_of: str


class MdtAnswer(View):
    """What the files state, sentence by sentence; a letter where options were given."""

    answer: str = Field(default="", max_length=200)
    sentences: tuple[Cited, ...] = Field(default=(), max_length=MOST_SENTENCES)
    not_told: str = Field(default="", max_length=1000)


def occurs(quote: str, text: str) -> bool:
    """Whether a passage stands in a text, spaces apart."""
    plain = " ".join(quote.split())
    return bool(plain) and plain in " ".join(text.split())


def numbers_in(text: str) -> set[str]:
    """The numbers of a text, whole; of a day with dots its three."""
    found: list[str] = []
    for number in re.findall(r"\d+(?:[.,]\d+)*", text):
        parts = re.split(r"[.,]", number)
        found += parts if len(parts) > 2 else [".".join(parts)]
    return {re.sub(r"^0+(?=\d)", "", part) for part in found}


def sentence_problems(board: Board, output: MdtAnswer, *, model: bool = True) -> list[str]:
    """Sentences without a passage of a file that was opened, or with advice.

    A model's numbers must stand in the passage, and its sentences only tell (`advice.only_tells`);
    rules round and count, and their sentences are SAGE's own.
    """
    texts = {file.name: file.text or "" for file in board.case.files if file.name in board.read}
    found = []

    def allowed(text: str) -> bool:
        return only_tells(text) if model else not gives_advice(text)

    for number, item in enumerate(output.sentences, 1):
        where = f"sentence {number}"
        known = texts.get(item.file, "") if item.file in texts else board.papers.get(item.file, "")
        if not item.sentence.strip():
            found.append(f"{where}: it is empty")
        if item.file in board.measured and occurs(item.quote, board.measured[item.file]):
            pass
        elif item.file not in texts and item.file not in board.papers:
            found.append(f"{where}: file {item.file!r} was not opened")
        elif not occurs(item.quote, known):
            found.append(f"{where}: its quote does not stand in {item.file}; copy it word for word")
        if sum(letter.isalnum() for letter in item.quote) < 2:
            found.append(f"{where}: its quote says nothing")
        for said in sorted(numbers_in(item.sentence) - numbers_in(item.quote)) if model else ():
            found.append(f"{where}: {said} does not stand in its quote")
        if not allowed(item.sentence):
            found.append(f"{where}: {_REFUSED}")
    if not allowed(output.not_told):
        found.append(f"not_told: {_REFUSED}")
    if not output.sentences and not output.not_told.strip():
        found.append("say at least what the files do not tell, in not_told")
    if output.answer.strip() and not output.sentences:
        found.append("answer: a letter needs a sentence with its passage")
    options = board.question.options
    open_question = not output.answer.strip() and output.not_told.strip()
    if options and not open_question and letter_of(output.answer, options) is None:
        found.append(f"answer: a letter of {', '.join(options)}, or none and why in not_told")
    return found


def _no_rule(_: MdtInput, __: Resources) -> MdtAnswer:
    raise FaultError("the rules work with the board's tools alone")


AGENT = Agent(
    name="mdt", role=Role.HIGH, reads=MdtInput, returns=MdtAnswer,
    prompt=prompt_file(__file__, "mdt.md"), rule=_no_rule,
)  # fmt: skip


def ask_mdt(board: Board, reasoner: Reasoner, as_of: str) -> Reply[MdtAnswer]:
    """What the patient's files state about the board's question.

    Parameters
    ----------
    board : the patient's files as one case with one question
    reasoner : a model, or the rules: these list what they can read in the files, and weigh options
    as_of : the day up to which files are known, as it is told
    """
    given = MdtInput(question=board.question.text, options=board.question.options,
                     files=board.listed, as_of=as_of)  # fmt: skip
    rules = reasoner.name == "rules"
    chosen: tuple[Cited, ...] = ()
    letter = ""
    priors: list[str] = []
    if rules and given.options:
        weighed = ask_board(board, reasoner).output
        valued = asks_a_value(given.question)  # which "high grade" of a report does not answer
        chosen = tuple(c for c in weighed.evidence if c.file and not gives_advice(c.quote)
                       and not other_language(c.quote)
                       and not (valued and c.sentence == SAYS))  # fmt: skip
        letter = weighed.answer if chosen else ""
        priors = [f"{c.sentence} ({c.quote})" for c in weighed.evidence if not c.file and chosen]
    offered = frozenset(tool.name for tool in board.tools())

    def policy(_: MdtInput, __: Resources) -> Moves[MdtAnswer]:
        return (yield from _state(board, offered, letter, chosen, priors))

    agent = replace(
        AGENT, tools=board.tools(), policy=policy,
        check=lambda _, output: sentence_problems(board, output, model=not rules),
        bounds=Bounds(turns=RULE_TURNS if rules else TURNS),
    )  # fmt: skip
    return reasoner.ask(agent, given)


def _state(
    board: Board,
    offered: frozenset[str],
    letter: str,
    chosen: tuple[Cited, ...],
    priors: list[str],
) -> Moves[MdtAnswer]:
    """What the rules can read: values, stages, scans, stains; options' own evidence goes first."""
    readable = [file.name for file in board.case.files if file.text is not None]
    texts: Mapping[str, str] = {}
    if readable:
        opened = yield Use("request_files", Files(names=tuple(readable[:64])))
        texts = {item["name"]: item["text"] for item in opened if item["text"]}
    found = list(chosen)
    unmeasured: list[str] = []
    why = ""
    for file in board.case.files:
        stained = file.image and re.search(r"ihc|cd\d+|pd-?l1|mhc|ki-?67", file.name.casefold())
        if stained and file.path is not None and "ihc_percent_positive" in offered:
            read = yield Use("ihc_percent_positive", OneFile(name=file.name))
            if read["percent_positive"] is not None:
                said = f"{read['percent_positive']}% of the cells of {file.name} are positive."
                found.append(Cited(sentence=said, file=file.name,
                                   quote=f"{read['percent_positive']}"))  # fmt: skip
            else:
                unmeasured.append(file.name)
                why = read["by"].removeprefix("nobody: ")
    listed = findings.of(texts)
    english = [item for item in listed if not other_language(item.quote)]
    kept = [item for item in english if not gives_advice(f"{item.sentence} {item.quote}")]
    found += kept
    plain = {"sentence": "The file states this."}
    named = [item if item.sentence else item.model_copy(update=plain)
             for item in dict.fromkeys(found)]  # fmt: skip
    told = ["No rule reads an answer to the question itself."] if not letter else priors[:2]
    blank = [name for name, text in texts.items()
             if is_table(name) and not any(row.state for row in rows(name, text))]  # fmt: skip
    if blank:
        told.append("No rule reads values with limits beside them in " + ", ".join(blank[:5]) + ":"
                    " columns such as test, value, low, high.")  # fmt: skip
    if unmeasured:
        told.append(f"Not measured: {', '.join(unmeasured[:5])}: {why}.")
    if len(listed) > len(english):
        left = amount(len(listed) - len(english), "passage")
        told.append(f"Left out, as the check against advice reads English alone: {left}.")
    if len(english) > len(kept):
        left = amount(len(english) - len(kept), "passage")
        told.append(f"Left out, as they tell somebody what to do: {left}.")
    if len(named) > MOST_SENTENCES:
        told.append(f"Not listed: {amount(len(named) - MOST_SENTENCES, 'more finding')}.")
    if not named:
        told.append("No rule found anything in the files.")
    return MdtAnswer(answer=letter, sentences=tuple(named[:MOST_SENTENCES]),
                     not_told=" ".join(told)[:1000])  # fmt: skip

"""The question as a contract: parsed, shown, corrected, and held against each hypothesis."""

from agents.question.carried import (
    Carried,
    account,
    account_line,
    excluded_keys,
    filters_of,
    keys_of,
    unanswered,
    without_subgroups,
)
from agents.question.types import (
    Asked,
    CohortWords,
    GraphName,
    Intent,
    Part,
    PartRole,
    Question,
    QuestionInput,
    Reading,
    Setting,
    Supply,
)

__all__ = [
    "Asked",
    "Carried",
    "CohortWords",
    "GraphName",
    "Intent",
    "Part",
    "PartRole",
    "Question",
    "QuestionInput",
    "Reading",
    "Setting",
    "Supply",
    "account",
    "account_line",
    "excluded_keys",
    "filters_of",
    "keys_of",
    "unanswered",
    "without_subgroups",
]

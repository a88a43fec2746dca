"""Descriptions of failed runs for a model, without disclosing patient data.

Nothing printed by a program is sent back. The description is limited to the name of an
error defined by Python or a public library, the lines in the program's own text that
raised it, and a hint from `HINTS`, in our words, if the message has a known form. No
value, name or word from the message is repeated.
"""

from __future__ import annotations

import builtins
import re

MOST_FRAMES = 2
"""Maximum number of quoted lines, since a program can print a forged traceback."""
LONGEST_LINE = 160
WITHHELD = "its other output is withheld"

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,6})(?:, in .*)?$')
_ERROR = re.compile(
    r"^(?:[a-z_]\w{0,30}\.){0,6}(?P<name>[A-Z]\w{2,50}(?:Error|Exception|Warning|Exit|Interrupt))"
    r"(?::\s*(?P<message>.*))?$"
)
_LIBRARIES = """
    ArrowInvalid ArrowKeyError ConvergenceError ConvergenceWarning DataError EmptyDataError
    IntCastingNaNError InvalidIndexError LinAlgError MergeError MissingDataError NotFittedError
    OutOfBoundsDatetime ParserError PerfectSeparationError SettingWithCopyWarning
    SpecificationError StatError UFuncTypeError UndefinedVariableError ValidationError
"""
ERROR_NAMES = frozenset(_LIBRARIES.split()) | {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""Errors defined by Python and the libraries; other names could be used to leak values."""

HINTS = (
    (r"could not convert string to float", "a text column was read as numbers"),
    (r"unsupported operand", "an operation on incompatible types"),
    (r"Length of values|lengths? must match|shape mismatch|not aligned|inconsistent numbers? of",
     "two arrays or columns differ in length or shape"),
    (r"cannot convert float NaN to integer|Cannot convert non-finite",
     "missing values were converted to integers: drop them first"),
    (r"NaNs? were detected|contains NaN|exog contains inf or nans|NaN or infinit",
     "missing values reached a model: drop them first"),
    (r"Singular matrix|[Cc]onvergence halted|low variance|collinear",
     "a model did not converge: constant, collinear or separating columns"),
    (r"[Pp]erfect separation", "the outcome is separated perfectly"),
    (r"not in index|not found in axis", "a column or label that is not in the table"),
    (r"No such file", "a missing file: read the inputs by their names"),
    (r"[Rr]ead-only file system|Permission denied", "a path that is not writable: only OUT is"),
    (r"not JSON serializable", "a value that JSON cannot represent: convert numpy numbers first"),
    (r"truth value of", "a whole column was used as one condition"),
    (r"No module named", "a missing module"),
    (r"missing \d+ required", "a call is missing an argument"),
    (r"unexpected keyword", "a call has an argument that the function does not accept"),
)  # fmt: skip
"""Hints for known error messages, by message form."""


def describe_failure(
    stderr: str, stdout: str, program: str, name: str = "/analysis.py"
) -> list[str]:
    """Describe the last error of a failed run without any patient data.

    Parameters
    ----------
    stderr, stdout : the program's output; always treated as if it were patient data
    program : the program's own text, from which the failing lines are quoted
    name : the end of the program's file name in a traceback
    """
    source = program.splitlines()
    lines: list[str] = []
    frames: list[int] = []
    read = 0
    for line in stderr.splitlines():
        if found := _FRAME.match(line):
            read += 1
            number = int(found["line"])
            if found["file"].endswith(name) and 1 <= number <= len(source):
                frames.append(number)
        elif found := _ERROR.match(line):
            read += 1
            lines = [
                f"line {number} of the program: {_plain(source[number - 1])}"
                for number in dict.fromkeys(frames[-MOST_FRAMES:])
            ]
            frames = []
            lines.append(_error(found["name"], found["message"] or ""))
    if len(stdout.splitlines()) + len(stderr.splitlines()) > read:
        lines.append(WITHHELD)
    return lines


def _plain(line: str) -> str:
    return "".join(sign for sign in line.strip() if sign.isprintable())[:LONGEST_LINE]


def _error(name: str, message: str) -> str:
    shown = name if name in ERROR_NAMES else "an error of its own"
    hint = next((said for pattern, said in HINTS if re.search(pattern, message)), "")
    return f"{shown}: {hint}" if hint else shown

"""What of a failed run may go back to a model: a border for patients' privacy.

Nothing that a program printed goes back as it was. What passes is built up from parts that are
known to be harmless: the names of errors, line numbers in the program, the program's own lines,
and messages in which every number, identifier, quoted value and long word is masked unless the
program or the contract itself already says it.
"""

from __future__ import annotations

import builtins
import re
from collections.abc import Collection, Iterable

MASK = "#"
LONGEST_MESSAGE = 240
MOST_FRAMES = 4
MOST_MASKED = 6

_FRAME = re.compile(r'^\s*File "(?P<file>[^"]{1,300})", line (?P<line>\d{1,6})(?:, in .*)?$')
_ERROR = re.compile(
    r"^(?:[a-z_]\w{0,30}\.){0,6}(?P<name>[A-Z]\w{2,50}(?:Error|Exception|Warning|Exit|Interrupt))"
    r"(?::\s*(?P<message>.*))?$"
)
_LIBRARIES = """
    ArrowInvalid ArrowKeyError ConvergenceError ConvergenceWarning DataError EmptyDataError
    InputError IntCastingNaNError InvalidIndexError LinAlgError MergeError MissingDataError
    NotFittedError OutOfBoundsDatetime ParserError PerfectSeparationError SettingWithCopyWarning
    SpecificationError StatError UFuncTypeError UndefinedVariableError ValidationError
"""
ERROR_NAMES = frozenset(_LIBRARIES.split()) | {
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, BaseException)
}
"""Errors of Python and of the libraries. Other names could be made to carry values."""
_QUOTED = re.compile(r"'([^']*)'|\"([^\"]*)\"|`([^`]*)`")
_TOKEN = re.compile(r"[^\s,;:()\[\]{}<>=!?|/\\'\"`]+")
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.:-]*")


def vocabulary(*texts: str) -> frozenset[str]:
    """The words of texts that the model has already seen: program, contract, interface."""
    return frozenset(
        word.strip(".:-") for text in texts for word in _WORD.findall(text) if len(word) > 1
    ) | frozenset(re.findall(r"(?<![\w.])\d{1,3}(?![\w.])", "\n".join(texts)))


def describe_failure(
    stderr: str,
    stdout: str,
    program: str,
    known: Collection[str] = (),
    withheld: Collection[str] = (),
) -> list[str]:
    """A failed run in lines that hold nothing of a patient.

    Parameters
    ----------
    stderr, stdout : what the program printed; treated as if it were patient data throughout
    program : the program's own text, from which the failing lines are quoted
    known : words that may be repeated (see `vocabulary`); the program's own words always may
    withheld : values that may never be repeated, even if they look harmless (patient identifiers)
    """
    words = (vocabulary(program) | frozenset(known)) - frozenset(withheld)
    secret = frozenset(one.casefold() for one in withheld)
    source = program.splitlines()
    lines: list[str] = []
    frames: list[int] = []
    read = 0
    for line in stderr.splitlines():
        if found := _FRAME.match(line):
            read += 1
            number = int(found["line"])
            if found["file"].endswith("/analysis.py") and 1 <= number <= len(source):
                frames.append(number)
        elif found := _ERROR.match(line):
            read += 1
            lines += [
                f"line {number} of the program: {source[number - 1].strip()[:160]}"
                for number in dict.fromkeys(frames[-MOST_FRAMES:])
            ]
            frames = []
            lines.append(_message(found["name"], found["message"] or "", words, secret))
    printed = len(stdout.splitlines()) + len(stderr.splitlines()) - read
    if printed:
        lines.append(f"{printed} more lines of output are withheld")
    return list(dict.fromkeys(lines))[-12:]


def _message(name: str, text: str, words: frozenset[str], secret: frozenset[str]) -> str:
    shown = name if name in ERROR_NAMES or name in words else "an error"
    said = mask(text, words, secret)
    return f"{shown}: {said}" if said else shown


def mask(text: str, words: Collection[str], secret: Collection[str] = ()) -> str:
    """One line with everything masked that is not plain prose or already known.

    A message in which a great deal had to be masked is withheld whole: it is a table, or somebody
    tries to smuggle one out.
    """
    line = text.strip()
    if len(line) > 4 * LONGEST_MESSAGE or "\t" in line:
        return "(message withheld)"
    masked = 0

    def quoted(match: re.Match[str]) -> str:
        nonlocal masked
        value = next(one for one in match.groups() if one is not None)
        if _may_say(value, words, secret):
            return match[0]
        masked += 1
        return f"'{MASK}'"

    def token(match: re.Match[str]) -> str:
        nonlocal masked
        word = match[0]
        if word == MASK or _may_say(word, words, secret) or _prose(word, secret):
            return word
        masked += 1
        return MASK

    # Quoted values are judged whole, so they are cut out before the words around them are.
    parts, at = [], 0
    for match in _QUOTED.finditer(line):
        parts += [_TOKEN.sub(token, line[at : match.start()]), quoted(match)]
        at = match.end()
    parts.append(_TOKEN.sub(token, line[at:]))
    said = re.sub(rf"{MASK}(?:[\s,;.]+{MASK})+", MASK, "".join(parts))
    return "(message withheld)" if masked > MOST_MASKED else said[:LONGEST_MESSAGE]


def _may_say(value: str, words: Collection[str], secret: Collection[str]) -> bool:
    bare = value.strip().strip(".:-")
    return bare.casefold() not in secret and (bare in words or bare == "")


_COMMON = """
    a an and any are argument arguments array arrays as at attribute axis be been before between
    bool both boundary bounds but by call called can cannot check column columns conversion convert
    converge converged could data dataframe day days decode defined delta dictionary did different
    dimension dimensions division divide do does dtype duplicate during each element elements empty
    encountered end error errors exceeded exist expected failed failure file first float for format
    found from function given got had has have hessian if in incompatible index indices infinite
    input inputs instance int integer into invalid is it its item items iterable key keys keyword
    known label labels large last length less level levels line list literal local lower match
    matches matrix maximum may mean method min minimum missing mixed module more multiple must name
    names nan negative no non none not null number numbers numeric object of on one only operand
    operation operator optimal or out outside overflow parameter parse pass passed path permitted
    positional positive program range read registered reindex required requires result results
    return returned row rows scalar sequence series set shape shapes should singular size smaller
    some string subscriptable such supported supports syntax table take takes test tests than that
    the their there they this time times to too truth tuple type types unable undefined unexpected
    unhashable unit unknown unpack unsupported up use used uses using value values variable
    variables was were when where which while with within without wrong you zero contract
    ambiguous operands broadcast together import imported such directory denied permission memory
    allocate recursion depth
"""
COMMON = frozenset(_COMMON.split())
"""Words of the error messages of Python and of the scientific libraries."""


def _prose(word: str, secret: Collection[str]) -> bool:
    """A common word of error messages, or a sign. Names of people and places are neither."""
    bare = word.strip(".-*+%&~^@…").casefold()
    return bare not in secret and (bare == "" or bare in COMMON)


def identifiers(values: Iterable[object]) -> frozenset[str]:
    """Values as they would be printed, for `withheld`."""
    return frozenset(str(one) for one in values)

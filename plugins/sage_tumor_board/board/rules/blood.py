"""Blood values against the reference ranges that lie beside them."""

from __future__ import annotations

import ast
import csv
import io
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sage_tumor_board.board.rules.weigh import (
    DOUBTED,
    SURE,
    UNKNOWN,
    Claim,
    Weighed,
    leading,
    together,
)
from sage_tumor_board.board.types import Cited

State = Literal["low", "normal", "high", "abnormal", "borderline"]
GFR = "Glomerular filtration rate"
GFR_NORMAL = 60.0
"""ml/min/1.73 m2; below it is decreased (KDIGO 2012, G3a). The files give no range for it."""
BORDER = 0.05
"""A value this near to a limit, relative to the limit, is called borderline."""

_NAMES: tuple[tuple[str, str], ...] = (
    ("MHCH", r"mean corpuscular ha?emoglobin concentration|mchc|mhch"),
    ("MCH", r"mean corpuscular ha?emoglobin|mch"),
    ("MCV", r"mean corpuscular volume|mcv"),
    ("RDW", r"(?:red (?:blood )?cell|erythrocyte) distribution width|rdw"),
    ("Erythrocytes", r"erythrocyte count|erythrocytes?|red (?:blood )?cell count|rbc"),
    ("Hemoglobin", r"ha?emoglobin"),
    ("Hematocrit", r"ha?ematocrit"),
    ("MPV", r"mean platelet volume|platelet mean volume|mpv"),
    ("PDW", r"platelet distribution width|pdw"),
    ("PLCR", r"platelet large(?: |-)cell ratio|p-?lcr"),
    ("Platelets", r"platelet counts?|platelets?|thrombocytes?"),
    ("aPPT", r"activated partial thromboplastin time|aptt|appt|ptt"),
    ("Thrombin time", r"thrombin time|tt"),
    ("PT", r"prothrombin time|pt"),
    ("INR", r"international normalized ratio|inr"),
    ("Leukocytes", r"leu[kc]ocyte counts?|leu[kc]ocytes?|white (?:blood )?cell count|wbc"),
    ("Immature Granulocytyes", r"immature granulocytes?"),
    ("Granulocytes", r"granulocytes?|neutrophils?"),
    ("Lymphocytes", r"lymphocytes?"),
    ("Monocytes", r"monocytes?"),
    ("Eosinophils", r"eosinophils?"),
    ("Basophils", r"basophils?"),
    ("Potassium", r"potassium"),
    ("Sodium", r"sodium"),
    ("Chloride", r"chloride"),
    ("Calcium", r"calcium"),
    ("Magnesium", r"magnesium"),
    ("Glucose", r"glucose|blood sugar"),
    ("Creatinine", r"creatinine"),
    ("Urea", r"urea|bun"),
    ("CRP", r"c-reactive protein|crp"),
    (GFR, r"glomerular filtration rate|e?gfr"),
)
_NAME = re.compile("|".join(f"(?P<n{i}>\\b(?:{p})\\b)" for i, (_, p) in enumerate(_NAMES)))
_SHARE = re.compile(r"\s*(?:percentages?|fraction|proportion|%)")
_STATES: tuple[tuple[State, re.Pattern[str]], ...] = (
    ("abnormal", re.compile(r"\b(?:outside|out of range|abnormal|not within)\b")),
    ("borderline", re.compile(r"\b(?:borderline|threshold)\b(?! range)")),
    ("low", re.compile(r"\b(?:low|lower|below|decreased?|reduced|diminished|shortened|deficien\w+"
                       r"|depressed)\b")),
    ("high", re.compile(r"\b(?:high|higher|elevated|increased|above|raised|exceeds?|prolonged)\b")),
    ("normal", re.compile(r"\b(?:normal|within|acceptable|adequate|unremarkable)\b")),
)  # fmt: skip
_DISEASES: dict[str, tuple[str, State]] = {
    "hyperkal": ("Potassium", "high"), "hypokal": ("Potassium", "low"),
    "hypernatr": ("Sodium", "high"), "hyponatr": ("Sodium", "low"),
    "hyperchlor": ("Chloride", "high"), "hypochlor": ("Chloride", "low"),
    "hypercalc": ("Calcium", "high"), "hypocalc": ("Calcium", "low"),
    "hypermagnes": ("Magnesium", "high"), "hypomagnes": ("Magnesium", "low"),
    "hyperglyc": ("Glucose", "high"), "hypoglyc": ("Glucose", "low"),
    "thrombocytopen": ("Platelets", "low"), "thrombocytos": ("Platelets", "high"),
    "leukocytos": ("Leukocytes", "high"), "leukopen": ("Leukocytes", "low"),
    "lymphopen": ("Lymphocytes", "low"), "lymphocytos": ("Lymphocytes", "high"),
    "neutropen": ("Granulocytes", "low"), "neutrophilia": ("Granulocytes", "high"),
    "monocytos": ("Monocytes", "high"), "eosinophilia": ("Eosinophils", "high"),
    "anemia": ("Hemoglobin", "low"), "anaemia": ("Hemoglobin", "low"),
    "polycyth": ("Erythrocytes", "high"), "macrocyt": ("MCV", "high"), "microcyt": ("MCV", "low"),
}  # fmt: skip

_TOPICS: tuple[tuple[str, dict[str, tuple[State, ...]]], ...] = (
    (r"an(?:a)?emi|oxygen|red blood|erythrocyte ind",
     {"Hemoglobin": ("low",), "Hematocrit": ("low",), "Erythrocytes": ("low",)}),
    (r"renal|kidney|nephro",
     {"Creatinine": ("high",), GFR: ("low", "borderline"), "Urea": ("high",)}),
    (r"electrolyte|arrhythm",
     dict.fromkeys(("Potassium", "Sodium", "Calcium", "Chloride"), ("low", "high"))),
    (r"coagul|clotting|bleeding|h(?:a)?emosta",
     {"aPPT": ("high",), "PT": ("low",), "INR": ("high",), "Thrombin time": ("high",),
      "Platelets": ("low",)}),
    (r"thrombo(?:embol|tic)|hypercoagul",
     {"Platelets": ("high",), "MPV": ("high",), "RDW": ("high",), "Granulocytes": ("high",)}),
    (r"infect|inflamm|immun|white blood|leu[kc]ocyt|differential",
     {"CRP": ("high",), "Leukocytes": ("low", "high"), "Lymphocytes": ("low",),
      "Lymphocytes %": ("low",), "Granulocytes": ("low", "high"), "Granulocytes %": ("low", "high"),
      "Monocytes": ("high",), "Eosinophils": ("high",), "Basophils": ("high",)}),
    (r"platelet", {"Platelets": ("low",), "MPV": ("high",)}),
    (r"metabol|diabet|glyc", {"Glucose": ("low", "high")}),
)  # fmt: skip
"""What a question is about: values, and in which direction they are what it asks for."""

_TAIL = re.compile(
    r",?\s*(?:\b(?:which|so there|thus)\b|\b(?:indicat|suggest|rais|consistent|confirm|ruling"
    r"|posing|potentially|affecting|signify|reflect)\w*\b).*$"
)
_CLAUSE = re.compile(r"[,;()]|\band\b|\bwith\b|\bbut\b|\bwhile\b|\bwhereas\b|\bdespite\b|\bor\b")
_OBJECT = re.compile(r"\{[^{}]{1,2000}\}")


_COLUMNS: dict[str, tuple[str, ...]] = {
    "name": ("analyte", "analyte_name", "test", "parameter", "lab"),
    "value": ("value", "result"),
    "low": ("low", "min", "ref_low", "lower", "reference_low", "normal_min"),
    "high": ("high", "max", "ref_high", "upper", "reference_high", "normal_max"),
    "range": ("range", "reference range", "reference_range", "ref_range", "normal range"),
    "unit": ("unit", "units"),
}
_RANGE = re.compile(r"(\d+(?:[.,]\d+)?)\s*(?:-|–|to)\s*(\d+(?:[.,]\d+)?)")
_CELLS = frozenset(
    ("Lymphocytes", "Granulocytes", "Monocytes", "Eosinophils", "Basophils", "Erythrocytes", "PT",
     "Thrombin time")
)  # fmt: skip
"""Names that are not of blood alone: cells in tissue, and short forms of other things."""


@dataclass(frozen=True)
class Row:
    """A value in a table's row, with the limits beside it and the row as it stands there."""

    name: str
    value: float
    unit: str
    low: float | None
    high: float | None
    day: str
    line: str

    @property
    def state(self) -> State | None:
        """Where it lies by its own limits; None without any."""
        if self.high is not None and self.value > self.high:
            return "high"
        if self.low is not None and self.value < self.low:
            return "low"
        return None if self.low is None and self.high is None else "normal"


@dataclass(frozen=True)
class Reading:
    """A measured value: low, normal or high; how far beyond its limit, relative to the limit.

    `place` is where it lies between the limits: 0 the lower, 1 the upper, 0.5 where one is unknown.
    """

    name: str
    value: float
    unit: str
    state: State | None
    beyond: float
    border: bool
    place: float
    cited: tuple[Cited, ...]


def objects(text: str) -> list[tuple[dict[str, Any], str]]:
    """The flat objects that a list holds, as JSON or as Python prints one, with their passages."""
    found = []
    for match in _OBJECT.finditer(text):
        plain = re.sub(r"\bnan\b", "None", match[0])
        for read in (json.loads, ast.literal_eval):
            try:
                value = read(plain)
            except (ValueError, SyntaxError, RecursionError, MemoryError):
                continue
            if isinstance(value, dict):
                found.append((value, match[0]))
                break
    return found


def is_table(name: str) -> bool:
    """Whether a file's name says that it is a table."""
    return name.casefold().endswith((".csv", ".tsv"))


def delimiter_of(name: str, text: str) -> str:
    """Of a table: the tab of a .tsv, else what the first line has most of, comma or semicolon."""
    if name.casefold().endswith(".tsv"):
        return "\t"
    first = text.partition("\n")[0]
    return ";" if first.count(";") > first.count(",") else ","


def rows(file: str, text: str) -> Iterator[Row]:
    """The values of a table that names an analyte and a value in each row."""
    if not is_table(file):
        return
    lines = text.splitlines()
    reader = csv.reader(io.StringIO(text), delimiter=delimiter_of(file, text))
    try:
        header = [cell.strip().casefold() for cell in next(reader, [])]
        at = {key: next((header.index(name) for name in names if name in header), None)
              for key, names in _COLUMNS.items()}  # fmt: skip
        at["day"] = next((n for n, name in enumerate(header) if "date" in name), None)
        if at["name"] is None or at["value"] is None:
            return
        for row in reader:
            cells = {key: row[i].strip() for key, i in at.items() if i is not None and i < len(row)}
            line = lines[reader.line_num - 1].strip() if reader.line_num <= len(lines) else ""
            value, low, high = (_decimal(cells.get(key, "")) for key in ("value", "low", "high"))
            if (given := _RANGE.search(cells.get("range", ""))) and low is None and high is None:
                low, high = _decimal(given[1]), _decimal(given[2])
            if value is not None and line and cells.get("name"):
                yield Row(cells["name"][:60], value, cells.get("unit", "")[:20], low, high,
                          cells.get("day", ""), line[:600])  # fmt: skip
    except csv.Error:
        return


def _decimal(text: str) -> float | None:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        return None
    return value if value == value else None


def asks_a_value(question: str) -> bool:
    """Whether a question names an analyte of the blood, so that only its value answers it."""
    return bool(set(_mentions(question.casefold(), {})) - _CELLS)


def readings(
    values: Mapping[str, str], ranges: Mapping[str, str], sex: str | None
) -> dict[str, Reading]:
    """The last value of each analyte before treatment, or in a table, with its state.

    Parameters
    ----------
    values : texts of files with blood values, by name
    ranges : texts of files with reference ranges, by name
    sex : male or female; None takes the values' own flags
    """
    limits: dict[str, tuple[dict[str, Any], Cited]] = {}
    for file, text in ranges.items():
        for item, passage in objects(text):
            name = item.get("analyte_name")
            if isinstance(name, str):
                limits[name] = (item, Cited(file=file, quote=passage[:400]))
    found: dict[str, tuple[float, Reading]] = {}
    for file, text in values.items():
        for item, passage in objects(text):
            reading = _reading(item, passage, file, limits, sex)
            if reading is None:
                continue
            day = item.get("days_before_first_treatment")
            day = float(day) if isinstance(day, int | float) else 0.0
            if reading.name not in found or day < found[reading.name][0]:
                found[reading.name] = (day, reading)
    return _tabled(values) | {name: reading for name, (_, reading) in found.items()}


def _tabled(values: Mapping[str, str]) -> dict[str, Reading]:
    """The last value of each analyte in tables, by the limits beside it."""
    listed = [(file, row) for file, text in values.items() for row in rows(file, text)]
    found = {}
    for file, row in sorted(listed, key=lambda item: item[1].day):
        if not (names := _mentions(row.name.casefold(), {})):
            continue
        said = f"{names[0]} {row.value:.4g} {row.unit}".strip()
        cited = Cited(sentence=f"{said} is {row.state or 'of unknown meaning'}", file=file,
                      quote=row.line)  # fmt: skip
        found[names[0]] = _placed(names[0], row.value, row.unit, row.state, row.low, row.high,
                                  (cited,))  # fmt: skip
    return found


def _reading(
    item: dict[str, Any], passage: str, file: str,
    limits: Mapping[str, tuple[dict[str, Any], Cited]], sex: str | None,
) -> Reading | None:  # fmt: skip
    name, value = item.get("analyte_name"), item.get("value")
    if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, int | float):
        return None
    limit = limits.get(name)
    low = high = None
    if limit is not None and sex is not None:
        low, high = (_number(limit[0].get(f"normal_{sex}_{side}")) for side in ("min", "max"))
        if low is None and high is None:
            low, high = (_number(limit[0].get(f"normal_male_{side}")) for side in ("min", "max"))
    if name == GFR and low is None:
        low = GFR_NORMAL
    state: State | None = None
    if low is not None or high is not None:
        state = "low" if low is not None and value < low else "normal"
        state = "high" if high is not None and value > high else state
    elif item.get("too_low") is True:
        state = "low"
    elif item.get("too_high") is True:
        state = "high"
    elif item.get("out_of_range") is False:
        state = "normal"
    sentence = f"{name} {value:.4g} {item.get('unit') or ''}".strip()
    said = f"{sentence} is {state or 'of unknown meaning'}"
    if name == GFR:
        said += " by the general limit of 60"
    cited = [Cited(sentence=said, file=file, quote=passage[:400])]
    if limit is not None and name != GFR and (low is not None or high is not None):
        cited.append(limit[1])
    return _placed(name, float(value), str(item.get("unit") or ""), state, low, high, tuple(cited))


def _placed(
    name: str, value: float, unit: str, state: State | None, low: float | None,
    high: float | None, cited: tuple[Cited, ...],
) -> Reading:  # fmt: skip
    """A reading where it lies between its limits, as far as there are any."""
    edge = low if state == "low" else high
    beyond = abs(value - edge) / edge if state in ("low", "high") and edge else 0.0
    border = any(edge and abs(value - edge) <= BORDER * edge for edge in (low, high))
    place = 0.5
    if low is not None and high is not None and high > low:
        place = min(1.0, max(0.0, (value - low) / (high - low)))
    return Reading(name, value, unit, state, beyond, border, place, cited)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and value == value else None


def _mentions(clause: str, known: Mapping[str, Reading]) -> list[str]:
    found = []
    for match in _NAME.finditer(clause):
        name = next(_NAMES[int(k[1:])][0] for k, v in match.groupdict().items() if v)
        share = _SHARE.match(clause, match.end())
        found.append(f"{name} %" if share and f"{name} %" in known else name)
    return found


def _state(clause: str) -> State | None:
    if re.search(r"\bnot (?:\w+ )?(?:low|reduced|elevated|high|increased|prolonged)\b", clause):
        return "normal"
    return next((state for state, pattern in _STATES if pattern.search(clause)), None)


def claims(
    words: str, known: Mapping[str, Reading], topic: Mapping[str, tuple[State, ...]]
) -> list[tuple[str, State]]:
    """Which values an option says to be low, normal or high.

    Words after "indicating", "which" and the like interpret, and claim nothing of their own. A
    value without a state takes that of the next one, as in "creatinine and urea are elevated".
    """
    text = re.sub(r"^\s*(?:yes|no)\b[,.]?", "", words.casefold())
    head = _TAIL.sub("", text)
    found: list[tuple[str, State]] = []
    waiting: list[str] = []
    last: State | None = None
    named: list[str] = []
    for clause in _CLAUSE.split(head):
        names, state = _mentions(clause, known), _state(clause)
        if not names and named and re.search(r"\bpercentage\b", clause):
            names = [f"{named[-1]} %"] if f"{named[-1]} %" in known else []
        if not names and state and re.search(r"\b(?:all|both|every)\b", clause):
            names = [name for name in topic if name in known]
        if state and re.search(r"prolonged|shortened", clause):
            turned: State = "low" if state == "high" else "high"
            found += [(name, turned if name == "PT" else state) for name in names]
        elif state:
            found += [(name, state) for name in (*waiting, *names)]
            waiting = []
        else:
            waiting += names
        named += names
        last = state or last
    found += [(name, last) for name in waiting if last]
    if not found and not _mentions(head, known):
        found = [known_as for stem, known_as in _DISEASES.items() if stem in text]
    return list(dict.fromkeys(found))


def _is(reading: Reading, state: State) -> bool:
    if state == "borderline":
        return reading.border
    return reading.state != "normal" if state == "abnormal" else reading.state == state


def _plain(
    first: str, options: Mapping[str, str], known: Mapping[str, Reading]
) -> dict[str, Weighed] | None:
    """Options that say yes, no or a state alone, by the one value that the question names.

    Without a state in the question, yes and no mean nothing that a value tells.
    """
    named = {name for name in _mentions(first, known) if name in known}
    bare = {letter: words.strip(" .").casefold() for letter, words in options.items()}
    reading = known[named.pop()] if len(named) == 1 else None
    if reading is None or reading.state is None:
        return None
    if set(bare.values()) <= {"yes", "no"}:
        asked = _state(first)
        both = all(pattern.search(first) for state, pattern in _STATES if state in ("low", "high"))
        if asked is None or both:
            return dict.fromkeys(options, Weighed(UNKNOWN))
        fits = {letter: (words == "yes") == _is(reading, asked) for letter, words in bare.items()}
    else:
        said = {letter: _state(words) for letter, words in bare.items() if " " not in words}
        if len(said) < len(bare):
            return None
        fits = {letter: state is not None and _is(reading, state) for letter, state in said.items()}
    return {
        letter: Weighed(SURE if fit else DOUBTED, reading.cited) for letter, fit in fits.items()
    }


def _holds(name: str, state: State, words: str, known: Mapping[str, Reading]) -> Claim:
    reading = known.get(name)
    if reading is None or reading.state is None:
        return Claim(UNKNOWN / 2)
    right = _is(reading, state)
    grave = re.search(r"\b(?:significantly|severe\w*|critical\w*|marked\w*|extreme\w*)\b", words)
    chance = SURE if right else DOUBTED
    if not right and reading.state == "normal" and state in ("low", "high"):
        chance *= 1.5 - reading.place if state == "low" else 0.5 + reading.place
    if right and grave and state in ("low", "high") and reading.beyond < 0.2:
        chance = UNKNOWN
    if state == "normal" and right and reading.border and reading.name == GFR:
        chance = 0.8
    return Claim(chance, reading.cited)


def topic_of(question: str, known: Mapping[str, Reading]) -> dict[str, tuple[State, ...]]:
    """The values that a question asks about, with the states that would answer it with yes."""
    first = question.split("\n", 1)[0].casefold()
    named = {name for name in _mentions(first, known) if name in known}
    topics = [values for pattern, values in _TOPICS if re.search(pattern, first)]
    merged: dict[str, tuple[State, ...]] = {}
    for values in topics[:1] or [{}]:
        merged.update(values)
    if named and not topics:
        merged = dict.fromkeys(named, ("low", "high"))
    if len(named) == 1 and (only := next(iter(named))) in merged:
        merged = {only: merged[only]}
    return merged


def weigh(
    question: str, options: Mapping[str, str], known: Mapping[str, Reading]
) -> dict[str, Weighed]:
    """Each option by how its claims fit the values.

    Of options that all fit, one that answers what was asked goes first: a value of the question's
    topic before another, and, where the question looks for a finding, a finding before a normal
    value. A yes or no that its topic's values speak against counts for little.
    """
    first = question.split("\n", 1)[0].casefold()
    if (plain := _plain(first, options, known)) is not None:
        return plain
    topic = topic_of(question, known)
    cited = tuple(
        item for name in topic if name in known for item in known[name].cited[:1]
    )  # fmt: skip
    states = {name: known[name].state for name in topic if name in known}
    finding = any(state in topic[name] for name, state in states.items() if state)
    sound = bool(re.search(r"within (?:the )?normal|adequate|safe\b|sufficient", first))
    found = {}
    for letter, words in options.items():
        said = claims(words, known, topic)
        if not said:
            none = bool(re.search(r"\b(?:no|none|normal|without)\b", words.casefold()))
            found[letter] = Weighed(UNKNOWN if none != finding else DOUBTED, cited)
            continue
        factor = 1.0
        answer = leading(words)
        if answer is not None and topic and answer != (finding != sound):
            factor *= 0.3
        for name, state in said:
            reading = known.get(name)
            if topic and name not in topic:
                factor *= 0.8
            elif sound and state in topic.get(name, ()) and not finding:
                factor *= 0.5
            elif not sound and reading is not None and reading.state in topic.get(name, ()):
                factor *= 1.5 if state != "normal" else 1.0
        factor *= 1.1 ** (len(said) - 1)
        found[letter] = together((_holds(n, s, words.casefold(), known) for n, s in said), factor)
    return found

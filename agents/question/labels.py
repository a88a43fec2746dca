"""The cohort's own labels and levels, matched by word stems."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from agents.question.names import OPTIONAL, list_known, terms_of
from agents.question.types import Level
from validation.core.dictionary import POOLED, Variable, level_key
from validation.core.hypothesis import Filter
from validation.core.levels import NO, SPELLINGS, YES, plain_level
from validation.inputs.population import two_levels

PREPOSITION = re.compile(
    r"\b(?:at|of|in|on|by|to|for|after|bei|der|des|im|au|de|du)\b", re.IGNORECASE
)
"""Prepositions that, in a label, follow the measured quantity and precede a place or time."""
SHARE = 0.5
"""Minimum share of a label's words that a phrase must contain to match the variable."""
HOLDS, FAILS = (frozenset(term for word in words for term in terms_of(word)) for words in (YES, NO))
RELATIVE = frozenset(("high", "low", "oth", "mix", "normal", *HOLDS, *FAILS))
"""Levels that are meaningless without the name of their variable."""
NEGATION = "non"
"""Term that negates a level's other words ("non-muscle-invasive")."""
REFERENCES = frozenset(("never", "no", "placebo", "observ", "control", "negat"))
"""Levels that mean the absence of a treatment or habit."""


@dataclass(frozen=True)
class LevelMatch:
    """Levels of a variable that a phrase names; `bare` if it does not also name a variable."""

    variable: Variable
    values: tuple[str | float, ...]
    bare: bool = False
    absent: str = ""
    """The only other level, if the phrase means all but this level ("smokers")."""

    @property
    def filters(self) -> tuple[Filter, ...]:
        """The condition that keeps patients at these levels."""
        if self.absent:
            return (Filter(variable=self.variable.key, op="ne", value=self.absent),)
        op, value = ("eq", self.values[0]) if len(self.values) == 1 else ("in", self.values)
        return (Filter.model_validate({"variable": self.variable.key, "op": op, "value": value}),)

    @property
    def exposure(self) -> tuple[str, Level | None]:
        """The key for comparing these levels with all others, and the level that is exposed."""
        pair = two_levels(self.variable.levels) if self.variable.kind == "binary" else None
        if pair is not None:
            return self.variable.key, "high" if self.values == (pair[1],) else "low"
        if all(isinstance(value, float) for value in self.values):
            return self.variable.key, None
        return level_key(self.variable.key, [str(value) for value in self.values]), "high"


class Labels:
    """Index of a cohort's variables and levels by the words in their names.

    A header word that is not among the `known` words is taken as an abbreviation of words
    that begin with it ("meno", "hormon").
    """

    def __init__(self, variables: Iterable[Variable], known: Container[str] = ()) -> None:
        self.variables = tuple(variables)
        self._names: list[tuple[frozenset[str], Variable]] = []
        self._heads: list[frozenset[str]] = []
        for variable in self.variables:
            for name in names_of(variable):
                if terms := terms_of(name, label=True):
                    self._names.append((terms, variable))
                    self._heads.append(terms_of(PREPOSITION.split(name)[0], label=True))
        self._all = {
            variable.key: frozenset().union(*(terms for terms, it in self._names if it is variable))
            for variable in self.variables
        }
        self._short = sorted(
            term
            for term in frozenset().union(*self._all.values())
            if len(term) >= 4 and term not in known and term not in list_known(True)
        )

    def terms(self, phrase: str) -> frozenset[str]:
        """Reduce a phrase to terms, abbreviated as in the cohort's headers."""
        wanted = terms_of(phrase)
        if not self._short:
            return wanted
        return frozenset(
            next((term for term in self._short if word.startswith(term)), word) for word in wanted
        )

    def find(self, phrase: str, *, part: bool = True) -> Variable | None:
        """Find the variable whose name matches the words in a phrase, or the only partial match.

        Without `part`, the phrase must contain all words of the name.
        """
        return self._of_terms(self.terms(phrase), part=part)

    def _of_terms(self, wanted: frozenset[str], *, part: bool = True) -> Variable | None:
        alike = [pair for pair in self._names if wanted and pair[0] - OPTIONAL == wanted - OPTIONAL]
        exact = [variable for terms, variable in alike if terms == wanted]
        exact += [variable for _, variable in alike if wanted - OPTIONAL]
        near = self.nearest(wanted) if part and not exact else []
        best = near[:1] if len(near) < 2 or near[0][0] > near[1][0] else []
        return next(iter([*exact, *(variable for _, variable in best)]), None)

    def nearest(self, wanted: frozenset[str]) -> list[tuple[float, Variable]]:
        """Rank the variables with a name that contains all the words, by their share of it."""
        core, shares = wanted - OPTIONAL, dict[str, float]()
        for (terms, variable), head in zip(self._names, self._heads, strict=True):
            enough = len(core) >= SHARE * len(terms - OPTIONAL)
            if core and core <= terms and enough and core & (head or terms):
                share = len(core) / len(terms - OPTIONAL)
                shares[variable.key] = max(share, shares.get(variable.key, 0.0))
        ranked = [(shares[item.key], item) for item in self.variables if item.key in shares]
        return sorted(ranked, key=lambda pair: -pair[0])

    def similar(self, phrase: str) -> list[str]:
        """List labels that share a word with a phrase, the most similar first."""
        wanted = self.terms(phrase) - OPTIONAL
        scored = [
            (len(wanted & terms) / len(wanted | terms), item.label)
            for item in self.variables
            if wanted & (terms := self._all[item.key])
        ]
        return [label for _, label in sorted(scored, key=lambda pair: -pair[0])]

    def level(self, phrase: str, *, present: bool | None = None) -> LevelMatch | None:
        """Find the levels that a phrase names: "p16-positive", "basal", "never smokers".

        `present` indicates a yes/no variable, as in "with" or "without" it.
        """
        wanted = self.terms(phrase)
        if present is not None:
            found = self.find(phrase)
            return self._side(found, present) if found else None
        for sign, side in ((HOLDS, True), (FAILS, False)):
            rest = self._of_terms(wanted - sign) if sign & wanted else None
            named = self._all[rest.key] if rest else wanted
            level = self._side(rest, side) if rest and not sign & wanted & named else None
            if level is not None:
                return level
        found_levels = [
            ((-len(match.values), len(wanted & self._all[match.variable.key])), match)
            for variable in self.variables
            if (match := self._level_of(variable, wanted)) is not None
        ]
        ranked = sorted(found_levels, key=lambda pair: pair[0], reverse=True)
        if ranked:
            tied = len(ranked) > 1 and ranked[0][0] == ranked[1][0]
            return None if tied else ranked[0][1]
        if "ever" in wanted and (own := self._of_terms(wanted - {"ever"})):
            return self._side(own, True) or self.reference(own)
        return None

    def reference(self, variable: Variable) -> LevelMatch | None:
        """Return all levels except the single level that means absence ("never", "placebo")."""
        absent = [level for level in variable.levels if _terms(level) & REFERENCES]
        rest = tuple(level for level in variable.levels if level not in absent and level != POOLED)
        return LevelMatch(variable, rest, absent=absent[0]) if len(absent) == 1 and rest else None

    def upper(self, variable: Variable) -> str:
        """Return the binary variable's level meaning yes or high, else the last level by name."""
        levels = sorted(level for level in variable.levels if level != POOLED)
        found = self._side(variable, True) or self.reference(variable)
        high = [level for level in levels if "high" in _terms(level)]
        return str(found.values[0]) if found is not None else (high or levels)[-1]

    def _side(self, variable: Variable, side: bool) -> LevelMatch | None:
        for level in variable.levels:
            if _terms(level) and _terms(level) <= (HOLDS if side else FAILS):
                return LevelMatch(variable, (level,))
        return None

    def _level_of(self, variable: Variable, wanted: frozenset[str]) -> LevelMatch | None:
        names = self._all[variable.key] | OPTIONAL
        part: list[str | float] = []
        for value, terms in _levels(variable):
            if not terms or (NEGATION in terms) != (NEGATION in wanted):
                continue
            rest = wanted - terms
            if terms <= wanted and rest <= names:
                bare = not rest - OPTIONAL
                return None if bare and terms <= RELATIVE else LevelMatch(variable, (value,), bare)
            core = wanted - OPTIONAL - (names - terms)
            if core and core < terms and not core <= RELATIVE:
                part.append(value)
        return LevelMatch(variable, tuple(part), bare=True) if part else None


def _levels(variable: Variable) -> Iterator[tuple[str | float, frozenset[str]]]:
    """List a variable's levels with their words, including those explained in its label or note."""
    if variable.kind == "continuous":
        return
    named = re.findall(r"[(,;] ?(\d*) ?=? ?([^\W\d][\w -]*)(?=[,;)])", variable.label)
    numbers = sorted(level for level in variable.levels if level.isdigit())
    listed = len(named) == len(numbers) > 1  # "(desert, excluded, inflamed)" of 0, 1 and 2
    for at, (code, words) in enumerate(named if variable.kind == "ordinal" else ()):
        if code or listed:
            yield float(code or numbers[at]), terms_of(words, label=True)
    for level in variable.levels:
        if level != POOLED and not level.replace(".", "", 1).isdigit():
            yield level, _terms(level)


@lru_cache(maxsize=5_000)
def _terms(level: str) -> frozenset[str]:
    plain = plain_level(level)
    if plain in SPELLINGS.values() or plain in YES | NO:
        return terms_of(plain)
    return terms_of(level.replace("<=", " at most ").replace(">", " over "), label=True)


def names_of(variable: Variable) -> tuple[str, ...]:
    """Return a variable's names: its label with and without additions, its key, its synonyms."""
    label = re.sub(r"\s*\(.*?\)", "", variable.label)
    return tuple(
        dict.fromkeys(
            name
            for name in (
                variable.label,
                label,
                re.sub(r" on (?:H&E )?(?:slides|H&E|immune cells)$", "", label),
                re.sub(r" (?:transcripts|signature|gene signature)$", "", label),
                variable.key.split(":")[-1].replace("_", " "),
                *variable.synonyms,
            )
            if name and len(name) > 1
        )
    )

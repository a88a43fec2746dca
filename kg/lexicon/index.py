"""Compiled term index that finds millions of names in text by rolling hashes of token runs.

Text and names are cut into the same tokens (runs of letters, runs of digits, single Greek letters,
punctuation that may not be crossed), so `PD-L1`, `PD L1` and `PDL1`, or `TGF-β1`, `TGFβ1` and
`TGF-beta 1` match without listing every spelling. A run of n tokens has a 64-bit hash; all runs of
a text are hashed at once and looked up in a sorted array behind a bit filter. There is no loop over
terms, and the file contains only plain arrays, compressed.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kg.lexicon.terms import GREEK, same_symbol, squeeze, variants
from kg.types import EntityType
from sage.core.errors import InputError
from sage.core.files import writing

U64 = npt.NDArray[np.uint64]
FORMAT = 5
MAX_TOKENS = 14
_FILTER_BITS = 22

_BREAKS = ".,;:()[]{}=<>!?|\n"
_LETTER, _DIGIT, _GREEK, _BREAK = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Match:
    """A name found in text: `start:end` are character offsets, `entry` indexes the lexicon."""

    start: int
    end: int
    entry: int


@dataclass(frozen=True, slots=True)
class LexiconEntry:
    """The entity that a name denotes."""

    id: str
    name: str
    type: EntityType


@dataclass(frozen=True, slots=True)
class Term:
    """A surface form of an entry; `symbol` terms must also match in case."""

    text: str
    entry: int
    symbol: bool


@dataclass(frozen=True, slots=True)
class Sense:
    """A meaning of an ambiguous spelling: an entry, with its long names."""

    text: str
    entry: int
    names: tuple[str, ...]


@lru_cache(maxsize=1)
def _tables() -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint32], U64, dict[int, int]]:
    """Build tables of character classes, lower-case codes, position weights and Greek hashes."""
    classes = np.zeros(65536, dtype=np.uint8)
    lower = np.arange(65536, dtype=np.uint32)
    for code in range(65536):
        char = chr(code)
        if char.isdigit():
            classes[code] = _DIGIT
        elif char.isalpha():
            classes[code] = _LETTER
        elif char in _BREAKS:
            classes[code] = _BREAK
        folded = char.lower()
        if len(folded) == 1:
            lower[code] = ord(folded)
    for char in GREEK:
        classes[ord(char)] = _GREEK
        classes[ord(char.upper())] = _GREEK
    state = 0x9E3779B97F4A7C15
    weights = np.empty(64, dtype=np.uint64)
    for index in range(64):  # splitmix64: fixed, so that files are portable
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        weights[index] = (z ^ (z >> 31)) | 1
    greek = {}
    for char, name in GREEK.items():
        greek[ord(char)] = _word_hash(name, weights)
    return classes, lower, weights, greek


def _word_hash(word: str, weights: U64) -> int:
    total = 0
    for position, char in enumerate(word):
        total += ord(char) * int(weights[min(position, 63)])
    return total % 2**64


Offsets = npt.NDArray[np.int64]


def tokenize(text: str) -> tuple[U64, Offsets, Offsets, npt.NDArray[np.bool_]]:
    """Split text into tokens: hashes, start and end offsets (characters), punctuation flags."""
    classes, lower, weights, greek = _tables()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
    codes = np.minimum(codes, 65535)
    kind = classes[codes]
    if not kind.any():
        empty = np.empty(0, dtype=np.int64)
        return np.empty(0, dtype=np.uint64), empty, empty, np.empty(0, dtype=bool)
    previous = np.concatenate(([np.uint8(0)], kind[:-1]))
    single = kind >= _GREEK
    begins = (kind > 0) & ((kind != previous) | single)
    following = np.concatenate((kind[1:], [np.uint8(0)]))
    ends_here = (kind > 0) & ((kind != following) | single)
    starts = np.flatnonzero(begins)
    ends = np.flatnonzero(ends_here) + 1
    low = lower[codes].astype(np.uint64)
    run = np.cumsum(begins) - 1
    position = np.arange(len(codes)) - starts[np.maximum(run, 0)]
    contribution = low * weights[np.minimum(np.maximum(position, 0), 63)]
    contribution[kind == 0] = 0
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(contribution, dtype=np.uint64)))
    hashes = sums[ends] - sums[starts]
    for index in np.flatnonzero(kind[starts] == _GREEK):
        hashes[index] = greek[int(lower[codes[starts[index]]])]
    return hashes, starts, ends, kind[starts] == _BREAK


_C = np.uint64(0xD6E8FEB86659FD93)


def _mix(values: U64) -> U64:
    values = values ^ (values >> np.uint64(32))
    values = values * np.uint64(0xD6E8FEB86659FD93)
    values = values ^ (values >> np.uint64(29))
    return values


class Lexicon:
    """Immutable index of names, built by `Lexicon.compile` and stored with `save` and `load`."""

    def __init__(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        self._a = arrays
        self._keys = arrays["keys"]
        self._filter = np.zeros(2**_FILTER_BITS, dtype=bool)
        self._filter[(self._keys >> np.uint64(64 - _FILTER_BITS)).astype(np.int64)] = True
        self._lengths = [int(n) for n in arrays["lengths"]]
        self._types = [EntityType(str(name)) for name in arrays["kinds"]]

    def __len__(self) -> int:
        return len(self._a["types"])

    @property
    def terms(self) -> int:
        """Number of distinct spellings."""
        return len(self._keys)

    @cached_property
    def digest(self) -> str:
        """Hash of the names, types and identifiers in the lexicon."""
        digest = hashlib.sha256()
        for field in ("keys", "owner", "types", "name_bytes", "id_bytes", "sense_bytes"):
            digest.update(np.ascontiguousarray(self._a[field]).tobytes())
        return digest.hexdigest()

    @cached_property
    def senses(self) -> dict[str, list[Sense]]:
        """Meanings of the spellings that count only in a text that supports one of them."""
        found: dict[str, list[Sense]] = {}
        for row in bytes(self._a["sense_bytes"]).decode("utf-8").splitlines():
            spelling, entry, *names = row.split("\t")
            found.setdefault(spelling, []).append(Sense(spelling, int(entry), tuple(names)))
        return found

    @cached_property
    def common(self) -> frozenset[str]:
        """Words of so many names that they identify none."""
        return frozenset(bytes(self._a["common_bytes"]).decode("utf-8").split())

    @classmethod
    def compile(
        cls,
        entries: Sequence[LexiconEntry],
        terms: Iterable[Term],
        senses: Iterable[Sense] = (),
        common: Iterable[str] = (),
    ) -> Lexicon:
        """Build an index of `terms`; if two entries share a spelling, the first term wins."""
        texts: list[str] = []
        owner: list[int] = []
        symbol: list[bool] = []
        for term in terms:
            plural = entries[term.entry].type is not EntityType.GENE
            for form in sorted(variants(term.text, term.symbol, plural=plural)):
                texts.append(form)
                owner.append(term.entry)
                symbol.append(term.symbol)
        blob = "\x00".join(texts)
        hashes, starts, _ends, _breaks = tokenize(blob.replace("\n", " "))
        offsets = np.cumsum([0] + [len(text) + 1 for text in texts])
        first = np.searchsorted(starts, offsets[:-1])
        last = np.append(first[1:], len(starts))
        counts = last - first
        keys = np.zeros(len(texts), dtype=np.uint64)
        for step in range(int(counts.max(initial=0))):
            active = counts > step
            if step >= MAX_TOKENS:
                break
            keys[active] = keys[active] * _C + hashes[first[active] + step]
        keys = _mix(keys)
        usable = np.flatnonzero((counts > 0) & (counts <= MAX_TOKENS))
        keys = keys[usable]
        # A stable sort keeps the order of priority within equal keys.
        order = np.argsort(keys, kind="stable")
        keys, kept = keys[order], usable[order]
        distinct = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.zeros(0, bool)
        squeezed = _surfaces(kept, distinct, texts, owner, symbol)
        keys, kept = keys[distinct], kept[distinct]
        kinds = {kind: index for index, kind in enumerate(EntityType)}
        return cls(
            {
                "format": np.array([FORMAT], dtype=np.int32),
                "keys": keys,
                "owner": np.array([owner[i] for i in kept], dtype=np.int32),
                "symbol": np.array([surface != "" for surface in squeezed], dtype=bool),
                "lengths": np.unique(counts[usable]).astype(np.int32),
                "types": np.array([kinds[entry.type] for entry in entries], dtype=np.uint8),
                "kinds": np.array([kind.value for kind in EntityType]),
                **_pack_strings("surface", squeezed),
                **_pack_strings("name", [entry.name for entry in entries]),
                **_pack_strings("id", [entry.id for entry in entries]),
                "sense_bytes": _pack_lines(
                    "\t".join((s.text, str(s.entry), *s.names)) for s in senses
                ),
                "common_bytes": _pack_lines(common),
            }
        )

    def entry(self, index: int) -> LexiconEntry:
        """Return the entry with this index, as given in a match."""
        return LexiconEntry(
            self._text("id", index), self._text("name", index), self._types[self._a["types"][index]]
        )

    def _text(self, field: str, index: int) -> str:
        offsets = self._a[f"{field}_at"]
        piece = self._a[f"{field}_bytes"][int(offsets[index]) : int(offsets[index + 1])]
        return bytes(piece).decode("utf-8")

    def find(self, text: str) -> list[Match]:
        """Find all names in `text`, in order; among overlapping names, keep the longest."""
        hashes, starts, ends, breaks = tokenize(text)
        count = len(hashes)
        if not count or not len(self._keys):
            return []
        free_start = np.ones(count, dtype=bool)
        free_start[1:] = (starts[1:] > ends[:-1]) | breaks[1:] | breaks[:-1]
        free_end = np.ones(count, dtype=bool)
        free_end[:-1] = free_start[1:]
        found: list[tuple[int, int, int]] = []
        running = np.zeros(count, dtype=np.uint64)
        longest = max(self._lengths)
        wanted = set(self._lengths)
        for n in range(1, min(longest, count) + 1):
            width = count - n + 1
            running = running[:width] * _C + hashes[n - 1 :]
            if n not in wanted:
                continue
            ok = free_start[:width] & free_end[n - 1 :]
            at = np.flatnonzero(ok)
            mixed = _mix(running[at])
            passed = self._filter[(mixed >> np.uint64(64 - _FILTER_BITS)).astype(np.int64)]
            at, mixed = at[passed], mixed[passed]
            if not len(at):
                continue
            slot = np.searchsorted(self._keys, mixed)
            slot = np.minimum(slot, len(self._keys) - 1)
            hit = self._keys[slot] == mixed
            for token, key in zip(at[hit].tolist(), slot[hit].tolist(), strict=True):
                found.append((int(starts[token]), int(ends[token + n - 1]), key))
        found.sort(key=lambda f: (f[0] - f[1], f[0]))
        taken = bytearray(len(text))
        chosen = []
        for start, end, key in found:
            if any(taken[start:end]) or not self._fits(text[start:end], key):
                continue
            taken[start:end] = b"\x01" * (end - start)
            chosen.append(Match(start, end, int(self._a["owner"][key])))
        chosen.sort(key=lambda m: m.start)
        return chosen

    def _fits(self, surface: str, key: int) -> bool:
        """Check a symbol's case: `CAT` is not `cat`, but the mouse gene `Kdm6a` matches KDM6A."""
        if not self._a["symbol"][key]:
            return True
        given = squeeze(surface)
        written = self._text("surface", key).split(_OR)
        if " " in surface or "\n" in surface:  # `was 2` is not WAS2
            return given in written
        return any(same_symbol(given, expected) for expected in written)

    def save(self, path: Path) -> None:
        """Write the index to a file of plain arrays."""
        with writing(path, durable=False) as stream:
            np.savez_compressed(stream, **self._a)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Lexicon:
        """Read an index written by `save`.

        Raises
        ------
        InputError
            If the file is missing, damaged or empty, or has another format version.
        """
        again = "import the vocabularies again"
        try:
            with zipfile.ZipFile(path) as archive:
                arrays = {
                    name.removesuffix(".npy"): np.lib.format.read_array(
                        io.BytesIO(archive.read(name)), allow_pickle=False
                    )
                    for name in archive.namelist()
                }
            version = int(arrays["format"][0])
        except FileNotFoundError:
            raise InputError(f"{path}: lexicon not found; import vocabularies first") from None
        except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise InputError(f"{path}: not a compiled lexicon ({error}); {again}") from None
        if version != FORMAT:
            raise InputError(
                f"{path}: lexicon format {version}, but this version reads {FORMAT}; {again}"
            )
        wrong = _damage(arrays)
        if wrong:
            raise InputError(f"{path}: damaged lexicon ({wrong}); {again}")
        return cls(arrays)


def _damage(arrays: dict[str, npt.NDArray[Any]]) -> str:
    """Describe any damage to a lexicon's arrays; the result is empty if there is none."""
    packed = ("surface", "name", "id")
    needed = ["keys", "owner", "symbol", "lengths", "types", "kinds"]
    needed += [f"{field}_{part}" for field in packed for part in ("bytes", "at")]
    needed += ["sense_bytes", "common_bytes"]
    missing = [name for name in needed if name not in arrays]
    if missing:
        return f"without {', '.join(missing)}"
    terms, entries = len(arrays["keys"]), len(arrays["types"])
    sizes = {"owner": terms, "symbol": terms, "surface_at": terms + 1}
    sizes |= {"name_at": entries + 1, "id_at": entries + 1}
    short = [name for name, size in sizes.items() if len(arrays[name]) != size]
    if short:
        return f"{', '.join(short)} of the wrong length"
    if not terms or not entries:
        return "no names"
    if arrays["owner"].min() < 0 or arrays["owner"].max() >= entries:
        return "names without an entry"
    if arrays["types"].max() >= len(arrays["kinds"]):
        return "entries without a type"
    unknown = sorted(set(map(str, arrays["kinds"])) - set(EntityType))
    if unknown:
        return f"unknown types {', '.join(unknown)}"
    if (arrays["keys"][1:] <= arrays["keys"][:-1]).any():
        return "names out of order"
    cut = [field for field in packed if arrays[f"{field}_at"][-1] != len(arrays[f"{field}_bytes"])]
    return f"{', '.join(cut)} truncated" if cut else ""


_OR = "\x1f"


def _surfaces(
    kept: npt.NDArray[np.int64],
    distinct: npt.NDArray[np.bool_],
    texts: Sequence[str],
    owner: Sequence[int],
    symbol: Sequence[bool],
) -> list[str]:
    """Return the allowed spellings for each key: its owner's (`MIR21`, `miR-21`), or any ("").

    `kept` contains the numbers of the terms sorted by key; `distinct` marks the first term
    for each key, which belongs to its owner.
    """
    found: list[list[str]] = []
    first = -1
    for term, starts in zip(kept.tolist(), distinct.tolist(), strict=True):
        if starts:
            first = owner[term]
            found.append([])
        if owner[term] == first:
            found[-1].append(squeeze(texts[term]) if symbol[term] else "")
    return ["" if "" in forms else _OR.join(dict.fromkeys(forms)) for forms in found]


def _pack_strings(field: str, texts: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    pieces = [text.encode("utf-8") for text in texts]
    offsets = np.zeros(len(pieces) + 1, dtype=np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    return {
        f"{field}_bytes": np.frombuffer(b"".join(pieces), dtype=np.uint8),
        f"{field}_at": offsets,
    }


def _pack_lines(lines: Iterable[str]) -> npt.NDArray[np.uint8]:
    return np.frombuffer("\n".join(lines).encode("utf-8"), dtype=np.uint8)

"""Matching of label files to slides by their full name, never by guessing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from sage.core.errors import InputError

IMAGES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".svs", ".ndpi", ".mrxs", ".scn", ".bif")
"""File name endings of training images."""


def bare(name: str) -> str:
    """Return a name without its image ending, if any; other dots belong to the name."""
    for ending in (".ome.tif", ".ome.tiff", *IMAGES):
        if name.lower().endswith(ending):
            return name[: -len(ending)]
    return name


def pair(outlines: Iterable[Path], slides: Iterable[Path], place: str) -> dict[Path, Path]:
    """Find the slide of each file of outlines.

    They have the same name (P1.s1.geojson or P1.s1.svs.geojson, P1.s1.svs). The part before
    the first dot is enough if exactly one slide and one file of outlines share it. `place` is the
    name of the slide folder in messages.

    Raises
    ------
    InputError
        If there is no such slide, more than one, or another file has its outlines too.
    """
    files, found = sorted(outlines), [s for s in sorted(slides) if s.suffix.lower() in IMAGES]
    whole: dict[str, list[Path]] = defaultdict(list)
    first: dict[str, list[Path]] = defaultdict(list)
    for slide in found:
        whole[slide.name].append(slide)
        whole[bare(slide.name)].append(slide)
        first[_first(slide)].append(slide)
    siblings: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        siblings[_first(file)].append(file)
    out: dict[Path, Path] = {}
    owner: dict[Path, Path] = {}
    for file in files:
        name = file.name.removesuffix(".geojson") if file.suffix == ".geojson" else file.stem
        own = whole.get(name) or whole.get(bare(name), [])
        if len(own) > 1:
            raise InputError(
                f"{file}: {own[0].name} and {own[1].name} both have its name; keep one"
            )
        if not own:
            near, beside = first.get(_first(file), []), siblings[_first(file)]
            if len(near) == 1 and len(beside) > 1:
                raise InputError(
                    f"{beside[0]} and {beside[1].name}: two files of outlines for one slide "
                    f"({near[0].name}); keep one"
                )
            if len(near) != 1:
                names = ", ".join(s.name for s in near[:2])
                raise InputError(
                    f"{file}: no slide of this name in {place}"
                    + (f"; {names} only begin like it, name it as its slide" if near else "")
                )
            own = near
        slide = own[0]
        if slide in owner:
            raise InputError(
                f"{owner[slide]} and {file.name}: two files of outlines for one slide "
                f"({slide.name}); keep one"
            )
        out[file], owner[slide] = slide, file
    return out


def _first(file: Path) -> str:
    return file.name.split(".")[0]


def read_patients(path: Path, shown: str) -> dict[str, str]:
    """Read each slide's patient from a CSV with these columns, removing image endings from slides.

    Raises
    ------
    InputError
        If the file cannot be read, lacks a column, or gives a slide two patients.
    """
    import pandas as pd

    try:
        table: Any = pd.read_csv(path, dtype=str, keep_default_na=False)
    except (ValueError, OSError) as error:
        raise InputError(f"{shown}: not a readable CSV: {error}") from error
    if not {"slide", "patient"} <= set(table.columns):
        raise InputError(f"{shown}: needs columns slide and patient")
    out: dict[str, str] = {}
    rows: dict[str, int] = {}
    for row, (slide, patient) in enumerate(zip(table["slide"], table["patient"], strict=True), 2):
        name = bare(slide)
        if out.setdefault(name, patient) != patient:
            raise InputError(
                f'{shown}: rows {rows[name]} and {row} give the slide "{name}" two patients, '
                f'"{out[name]}" and "{patient}"; keep one'
            )
        rows.setdefault(name, row)
    return out

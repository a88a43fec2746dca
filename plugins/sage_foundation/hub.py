"""Lookup of Hugging Face weights by name in the user's cache, without any download."""

from __future__ import annotations

import re
from pathlib import Path

from sage.core.errors import InputError

NAME = re.compile(
    r"^(?:hf-hub:)?(?P<repo>[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95})(?:@(?P<revision>[\w.-]{1,100}))?"
    r":(?P<file>(?:[\w-][\w.-]*/){0,4}[\w-][\w.-]*)$",
    re.ASCII,
)
SAFE = (".safetensors", ".onnx")


def find_cached(name: str) -> Path:
    """Find the file of "owner/model:nuclei.onnx" or "owner/model@revision:nuclei.onnx".

    The name may begin with "hf-hub:", the prefix that timm uses for models on the hub.

    Raises
    ------
    InputError
        If the name is invalid, the file could run code, the client is not installed, or the file
        is not in the cache; the message explains how to download it.
    """
    named = NAME.match(name)
    if named is None:
        raise InputError(
            f"hub={name[:120]!r} is no name of a file on the hub; write OWNER/NAME:FILE, or"
            " OWNER/NAME@REVISION:FILE. Names of timm without a file name classifiers of images,"
            " which outline no nuclei"
        )
    repo, revision, file = named["repo"], named["revision"], named["file"]
    if not file.endswith(SAFE):
        raise InputError(
            f"hub={name!r}: by name only {' and '.join(SAFE)} are taken, which run no code; a"
            " TorchScript module is code: download and name it as weights=FILE if you trust it"
        )
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        raise InputError(
            'hub= needs the package huggingface_hub: pip install "sage-pathology[models]"'
        ) from None
    found = try_to_load_from_cache(repo, file, revision=revision)
    if not isinstance(found, str):
        at = f" --revision {revision}" if revision else ""
        raise InputError(
            f"hub={name!r} is not in the hub's cache on this machine, and tools download nothing;"
            f" where there is a network: hf download {repo} {file}{at}, then copy the cache"
            " (HF_HUB_CACHE) if that was another machine"
        )
    return Path(found)


def fingerprint(name: str) -> str:
    """Return the content that a name currently refers to, which is part of the result cache key."""
    try:
        return str(find_cached(name).resolve().name)  # the cache names files by their hash
    except InputError:
        return "absent"

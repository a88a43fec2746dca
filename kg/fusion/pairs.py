"""Cache of similar name pairs, so that each fusion compares only new names.

The pairs do not depend on the order of the names. A fusion that takes old pairs from the
cache and compares only new names therefore gives the same result as comparing everything.
The vectors are in a separate append-only file, linked to the pairs by a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from kg.embedding.embed import Embedder, FloatArray
from kg.fusion.cosine import Pairs, find_cross_pairs, find_pairs
from sage.core.errors import FaultError
from sage.core.files import writing
from sage.core.log import logger

log = logger(__name__)

_FORMAT = 2


def similar_pairs(
    names: Sequence[str], tau: float, embedder: Embedder, cache: Path | None
) -> Pairs:
    """Find the pairs of positions in `names` (all distinct) whose vectors have cosine >= tau.

    Parameters
    ----------
    cache : file from an earlier call; names in it are not compared with each other again. The file
        is replaced by one that includes the given names, and their vectors are appended to the
        vector file next to it. A cache made with another model or a higher tau is ignored.
    """
    if cache is None:
        return find_pairs(embedder.embed(names), tau)
    kept = PairCache.load(cache, embedder, tau)
    if kept is None:
        none = np.zeros((0, embedder.dimension), np.float32)
        kept = PairCache(embedder.name, tau, [], none, _no_pairs())
    new = sorted(set(names) - set(kept.names))
    if new:
        kept.grow(new, embedder.embed(new), cache)
    return kept.select(names, tau)


def _no_pairs() -> Pairs:
    none = np.zeros(0, dtype=np.int32)
    return Pairs(none, none, np.zeros(0, dtype=np.float32))


def _vectors(cache: Path) -> Path:
    """Return the path of the vector file that belongs to a pair file."""
    return cache.with_suffix(".vectors")


class PairCache:
    """Names, their vectors and all their pairs above `tau`."""

    def __init__(
        self, model: str, tau: float, names: list[str], vectors: FloatArray, found: Pairs
    ) -> None:
        self.model, self.tau = model, tau
        self.names, self.vectors, self.pairs = names, vectors, found

    @classmethod
    def load(cls, path: Path, embedder: Embedder, tau: float) -> PairCache | None:
        """Load the cache, or return None if it is missing, damaged, or made with other settings."""
        try:
            with np.load(path, allow_pickle=False) as stored:
                meta = json.loads(bytes(stored["meta"]))
                if meta["format"] != _FORMAT or meta["model"] != embedder.name or meta["tau"] > tau:
                    return None
                names = bytes(stored["names"]).decode().split("\n")
                found = Pairs(stored["left"], stored["right"], stored["cosine"])
            size = len(names) * embedder.dimension
            vectors = np.fromfile(_vectors(path), dtype=np.float32, count=size)
            if zlib.crc32(vectors.data) != meta["vectors"]:
                raise ValueError(f"{_vectors(path).name} belongs to a different set of pairs")
            vectors = vectors.reshape(len(names), embedder.dimension)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            log.failed("cache unreadable; computed again", error, path=path)
            return None
        return cls(embedder.name, float(meta["tau"]), names, vectors, found)

    def grow(self, new: Sequence[str], fresh: FloatArray, path: Path) -> None:
        """Add names that are not in the cache yet, with their vectors, and update the files.

        Parameters
        ----------
        fresh : (n, d) vectors of the new names
        path : the pair file; if the process is killed, this file and its vectors are either
            unchanged or will not be read
        """
        n = np.int32(len(self.names))
        within = find_pairs(fresh, self.tau)
        across = find_cross_pairs(fresh, self.vectors, self.tau) if n else _no_pairs()
        self.pairs = Pairs(
            np.concatenate([self.pairs.left, across.right, within.left + n]),
            np.concatenate([self.pairs.right, across.left + n, within.right + n]),
            np.concatenate([self.pairs.cosine, across.cosine, within.cosine]),
        )
        self.names = [*self.names, *new]
        fresh = np.ascontiguousarray(fresh, dtype=np.float32)
        checksum = zlib.crc32(fresh.data, zlib.crc32(self.vectors.data))
        meta = {"format": _FORMAT, "model": self.model, "tau": self.tau, "vectors": checksum}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _vectors(path).open("r+b" if n else "wb") as stream:
                stream.seek(self.vectors.nbytes)
                stream.write(fresh.data)
            with writing(path, durable=False) as stream:
                np.savez(
                    stream,
                    meta=np.frombuffer(json.dumps(meta).encode(), dtype=np.uint8),
                    names=np.frombuffer("\n".join(self.names).encode(), dtype=np.uint8),
                    left=self.pairs.left,
                    right=self.pairs.right,
                    cosine=self.pairs.cosine,
                )
        except OSError as error:
            raise FaultError(
                f"{path}: the similar-pairs cache could not be written ({error})."
            ) from error

    def select(self, names: Sequence[str], tau: float) -> Pairs:
        """Select the pairs among `names`, as sorted pairs of positions in `names`."""
        place = {name: position for position, name in enumerate(names)}
        to = np.array([place.get(name, -1) for name in self.names], dtype=np.int32)
        if not len(to):
            return _no_pairs()
        first, second = to[self.pairs.left], to[self.pairs.right]
        keep = (first >= 0) & (second >= 0) & (self.pairs.cosine >= np.float32(tau))
        left = np.minimum(first[keep], second[keep])
        right = np.maximum(first[keep], second[keep])
        order = np.lexsort((right, left))
        return Pairs(left[order], right[order], self.pairs.cosine[keep][order])

"""Sidecar that stores the graph's arrays as files that load instantly.

The sidecar is a folder with `meta.json`, which names a subfolder of arrays by the hash of
their content. A new version is written next to the old version, and `meta.json` is
replaced last, so that a process killed at any moment leaves a complete graph. Arrays are
read without pickle; texts are memory-mapped.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from kg.graph.rows import JsonRows, encode_row
from sage.core.errors import FaultError, InputError
from sage.core.files import write_text

if TYPE_CHECKING:
    from kg.graph.arrays import GraphArrays

SIDECAR = "graph.kg"
FORMAT = 1
_STRINGS = ("ids", "names", "alias_keys")
_NODE = {"types": "u1"}
_EDGE = {
    "head": "i4", "tail": "i4", "relation": "i4", "polarity": "u1", "negated": "b1",
    "weight": "f4", "belief": "f4", "documents": "i4", "first_year": "i4", "last_year": "i4",
}  # fmt: skip
_READING = {
    "reading_edge": "i4", "reading_document": "i4", "reading_year": "i4",
    "reading_confidence": "f4", "reading_speculative": "b1", "reading_retracted": "b1",
    "reading_place": "i4",
}  # fmt: skip
_ARRAYS = {**_NODE, **_EDGE, **_READING, "alias_node": "i4"}
_ROWS = ("node_rows", "edge_rows")


def is_sidecar(folder: Path) -> bool:
    """Check whether the folder contains a graph sidecar."""
    return (folder / "meta.json").is_file()


def write_sidecar(graph: GraphArrays, folder: Path) -> Path:
    """Write `graph` to `folder`; the same graph gives the same bytes."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file, but a graph sidecar is a folder.")
    if folder.is_dir() and any(folder.iterdir()) and not is_sidecar(folder):
        raise InputError(f"{folder} is not empty; choose a new folder for the graph.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder))
    except OSError as error:
        raise FaultError(f"{folder}: the graph cannot be written there ({error}).") from error
    try:
        digest = _write_files(graph, work)
        final = folder / f"v-{digest[:16]}"
        if final.exists():
            shutil.rmtree(work)
        else:
            work.rename(final)
        meta = {
            "format": FORMAT,
            "data": final.name,
            "nodes": graph.n_nodes,
            "edges": graph.n_edges,
            "readings": len(graph.reading_edge),
            "dimension": None if graph.vectors is None else int(graph.vectors.shape[1]),
            "graph": graph.meta,
        }
        text = json.dumps(meta, ensure_ascii=False, indent=1, sort_keys=True)
        write_text(folder / "meta.json", text)
    except OSError as error:
        shutil.rmtree(work, ignore_errors=True)
        raise FaultError(f"{folder}: the graph could not be written ({error}).") from error
    except BaseException:
        shutil.rmtree(work, ignore_errors=True)
        raise
    for old in [*folder.glob("v-*"), *folder.glob(".new-*")]:
        if old != final:
            shutil.rmtree(old, ignore_errors=True)
    return folder


def _write_files(graph: GraphArrays, work: Path) -> str:
    digest = hashlib.sha256()

    def keep(name: str, content: bytes | mmap.mmap) -> None:
        (work / name).write_bytes(content)
        digest.update(name.encode() + b"\0")
        digest.update(content)

    for name in _STRINGS:
        keep(f"{name}.txt", "\n".join(getattr(graph, name)).encode())
    for name, kind in _ARRAYS.items():
        array = np.ascontiguousarray(getattr(graph, name), dtype=np.dtype(kind).newbyteorder("<"))
        keep(f"{name}.bin", array.tobytes())
    for name in _ROWS:
        rows: JsonRows = getattr(graph, name)
        used = graph.node_row if name == "node_rows" else graph.edge_row
        if len(rows) != len(used) or not np.array_equal(used, np.arange(len(rows))):
            rows = JsonRows.from_texts(
                encode_row(rows[int(n)]) for n in used
            )  # rows of this part alone
        keep(f"{name}.jsonl", rows.buffer)
        keep(f"{name}.offsets.bin", np.asarray(rows.offsets, dtype="<i8").tobytes())
    if graph.vectors is not None:
        keep("vectors.bin", np.ascontiguousarray(graph.vectors, dtype="<f4").tobytes())
    return digest.hexdigest()


def read_sidecar(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read the columns and metadata of `kg.graph.model.Graph`.

    Raises
    ------
    InputError
        If a file is missing, truncated, or from another version; the message names it.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        if meta["format"] != FORMAT:
            raise InputError(
                f"{folder}: graph sidecar format {meta['format']}, but this version reads "
                f"{FORMAT}; rebuild the graph."
            )
        if "/" in meta["data"] or "\\" in meta["data"] or ".." in meta["data"]:
            raise InputError(f"{folder}/meta.json refers to a path outside its folder.")
        data = folder / meta["data"]
        n, m, r = int(meta["nodes"]), int(meta["edges"]), int(meta["readings"])
        columns: dict[str, Any] = {
            name: (data / f"{name}.txt").read_text(encoding="utf-8").split("\n")
            for name in _STRINGS
        }
        if not n:
            columns["ids"], columns["names"] = [], []
        for names, size in ((_NODE, n), (_EDGE, m), (_READING, r)):
            for name, kind in names.items():
                columns[name] = _array(data / f"{name}.bin", kind, size)
        columns["alias_node"] = _array(
            data / "alias_node.bin", "i4", (data / "alias_node.bin").stat().st_size // 4
        )
        if not len(columns["alias_node"]):
            columns["alias_keys"] = []
        for name, size in (("node_rows", n), ("edge_rows", m)):
            columns[name] = JsonRows(
                _map_file(data / f"{name}.jsonl"),
                _array(data / f"{name}.offsets.bin", "i8", size + 1),
            )
        columns["node_row"] = np.arange(n, dtype=np.int32)
        columns["edge_row"] = np.arange(m, dtype=np.int32)
        columns["vectors"] = _vectors(data / "vectors.bin", n, meta["dimension"])
        for name in ("ids", "names"):
            if len(columns[name]) != n:
                raise InputError(f"{data / name}.txt is damaged; rebuild the graph.")
        if n and (
            m
            and (
                min(columns["head"].min(), columns["tail"].min()) < 0
                or max(columns["head"].max(), columns["tail"].max()) >= n
            )
        ):
            raise InputError(f"{data}: an edge refers to a nonexistent node; rebuild the graph.")
        return columns, meta["graph"]
    except (OSError, KeyError, TypeError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{folder}: the graph sidecar is damaged ({error}); rebuild the graph."
        ) from error


def _array(path: Path, kind: str, size: int) -> Any:
    dtype = np.dtype(kind).newbyteorder("<")
    array = np.fromfile(path, dtype=dtype)
    if len(array) != size:
        raise InputError(f"{path} has {len(array)} entries, expected {size}; rebuild the graph.")
    return array


def _map_file(path: Path) -> bytes | mmap.mmap:
    if not path.stat().st_size:
        return b""
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _vectors(path: Path, n: int, dimension: int | None) -> Any:
    if dimension is None:
        return None
    if not n:
        return np.zeros((0, dimension), dtype=np.float32)
    if path.stat().st_size != 4 * n * dimension:
        raise InputError(
            f"{path}: expected {n} vectors of dimension {dimension}; rebuild the graph."
        )
    return np.memmap(path, dtype="<f4", mode="r", shape=(n, dimension))

"""Typed maps of a slide: cells, objects and regions within the tissue, in µm.

A map that is None was not made; a map without entries means that none of its types were
found. The difference matters: the former leaves a measurement undefined, the latter makes
counts zero.

On disk, a slide is a folder: `maps.json` (names, units, counts and the hash of every
other file), `cells.parquet`, `objects.geojson`, `regions.geojson`, `window.geojson`.
Coordinates are in µm from the slide's corner, x to the right, y down.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

import numpy as np
from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from mcp_servers.formats.geojson import read_objects
from mcp_servers.lazy import shapely
from mcp_servers.slides.arrays import F64, I64, AnyArray, BoolArray
from sage.core.errors import InputError, explain_validation
from sage.core.files import replacing, write_bytes, write_json
from sage.core.hashes import hash_file
from sage.core.models import Strict
from sage.core.seeds import generator

MANIFEST = "maps.json"
FARTHEST_UM = 1e6
"""Maximum coordinate, in µm; anything beyond it is treated as an error."""
FORMAT = 1


def _is_free(name: str) -> str:
    if iskeyword(name):
        raise ValueError(f"{name!r} is a reserved word; choose another name")
    return name


Name = Annotated[
    str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,59}$"), AfterValidator(_is_free)
]
"""Name of a type, kind or column: "lymphoid", "germinal_center", "area_um2"."""


@dataclass(frozen=True, slots=True)
class Column:
    """A number per cell, with its unit ("µm", "µm²", "OD", or "1" for a pure number)."""

    values: F64
    unit: str


@dataclass(frozen=True, slots=True)
class CellMap:
    """Cells on a slide.

    Parameters
    ----------
    x_um, y_um : (n,) centers
    types : the types that were analyzed, including those without cells
    codes : (n,) index of each cell's type in `types`, -1 if it has none of them
    probabilities : (n, types), if the detector provides them
    columns : shape and stain measures for each cell, NaN if unknown
    """

    x_um: F64
    y_um: F64
    types: tuple[str, ...]
    codes: I64
    probabilities: F64 | None = None
    columns: Mapping[str, Column] = field(default_factory=dict)

    def __post_init__(self) -> None:
        count = len(self.x_um)
        lengths = [len(self.y_um), len(self.codes), *(len(c.values) for c in self.columns.values())]
        if self.probabilities is not None:
            lengths.append(len(self.probabilities))
            if self.probabilities.shape[1:] != (len(self.types),):
                raise InputError("cells: probabilities must have one column per type")
        if any(length != count for length in lengths):
            raise InputError("cells: columns have different lengths")
        _check_finite("cells", self.x_um, self.y_um)
        _check_codes("cells", self.codes, len(self.types), lowest=-1)

    def __len__(self) -> int:
        return len(self.x_um)

    @property
    def points(self) -> F64:
        """Centers in µm, an (n, 2) array."""
        return np.column_stack([self.x_um, self.y_um])

    def of_type(self, name: str) -> BoolArray:
        """Return an (n,) mask of the cells of a given type, which must have been analyzed."""
        return np.asarray(self.codes == self.types.index(name))

    def take(self, chosen: AnyArray) -> CellMap:
        """Select cells by a mask or by indices."""
        return replace(
            self,
            x_um=self.x_um[chosen],
            y_um=self.y_um[chosen],
            codes=self.codes[chosen],
            probabilities=None if self.probabilities is None else self.probabilities[chosen],
            columns={name: Column(c.values[chosen], c.unit) for name, c in self.columns.items()},
        )


@dataclass(frozen=True, slots=True)
class ShapeMap:
    """Objects (TLS, germinal centers) or regions (tumor, stroma) on a slide.

    Parameters
    ----------
    shapes : (n,) shapely polygons or multipolygons in µm; points for objects without an
        outline
    kinds : the kinds that were analyzed, including those without shapes
    codes : (n,) index of each shape's kind in `kinds`
    """

    shapes: AnyArray
    kinds: tuple[str, ...]
    codes: I64

    def __post_init__(self) -> None:
        if len(self.shapes) != len(self.codes):
            raise InputError("shapes: the number of kinds must equal the number of shapes")
        _check_codes("shapes", self.codes, len(self.kinds), lowest=0)
        _check_finite("shapes", _bounds(self.shapes))

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def points(self) -> F64:
        """Centroids in µm, an (n, 2) array."""
        return np.asarray(shapely.get_coordinates(shapely.centroid(self.shapes)), dtype=np.float64)

    def take(self, chosen: AnyArray) -> Self:
        """Select shapes by a mask or by indices."""
        return replace(self, shapes=self.shapes[chosen], codes=self.codes[chosen])

    def of_kind(self, name: str) -> AnyArray:
        """Return the shapes of a given kind, which must have been analyzed."""
        return np.asarray(self.shapes[self.codes == self.kinds.index(name)], dtype=object)


class ObjectMap(ShapeMap):
    """Objects to be counted: TLS, germinal centers, glands."""

    __slots__ = ()


class RegionMap(ShapeMap):
    """Areas that contain cells and objects, as polygons only: tumor, stroma, necrosis."""

    __slots__ = ()

    def __post_init__(self) -> None:
        ShapeMap.__post_init__(self)
        _require_areas("regions", self.shapes)


M = TypeVar("M", bound=ShapeMap)


@dataclass(frozen=True, slots=True)
class SlideMaps:
    """Maps of a slide, a field or a tissue core.

    Parameters
    ----------
    window : shapely multipolygon of the analyzed tissue, in µm; None if unknown
    mpp : µm per pixel in the slide from which the maps were made
    provenance : the tool that made each map ("cells": "nuclei 2.0.0")
    outside_card : reason why the slide is outside the validity card of the tool that made the
        maps; its values are computed and marked as not valid
    withheld : reasons why a cell type or a kind of object or region was not analyzed, by name
    coded : results of programs on exactly these maps, by program hash: a number, or the
        reason that there is none; never stored on disk
    """

    slide: str
    patient: str
    window: Any = None
    cells: CellMap | None = None
    objects: ObjectMap | None = None
    regions: RegionMap | None = None
    mpp: float | None = None
    provenance: Mapping[str, str] = field(default_factory=dict)
    outside_card: tuple[str, ...] = ()
    withheld: Mapping[str, str] = field(default_factory=dict)
    coded: Mapping[str, float | str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.window is not None:
            _require_areas("window", np.array([self.window], dtype=object))

    @property
    def area_um2(self) -> float | None:
        """Area of the window; None if unknown."""
        return None if self.window is None else float(self.window.area)

    @property
    def is_empty(self) -> bool:
        """True if there is no window and no cell, object or region."""
        held = (self.cells, self.objects, self.regions)
        return self.window is None and not any(held)


class _Cells(Strict):
    types: tuple[Name, ...] = Field(max_length=64)
    columns: dict[Name, str] = Field(max_length=256)
    probabilities: bool
    count: int = Field(ge=0)


class _Shapes(Strict):
    kinds: tuple[Name, ...] = Field(max_length=64)
    count: int = Field(ge=0)


class Held(Strict):
    """Manifest of a slide's maps."""

    format: Literal[1]
    unit: Literal["um"]
    slide: str = Field(min_length=1, max_length=200)
    patient: str = Field(min_length=1, max_length=200)
    mpp: float | None = Field(default=None, gt=0, le=200)
    area_um2: float | None = Field(default=None, ge=0)
    cells: _Cells | None = None
    objects: _Shapes | None = None
    regions: _Shapes | None = None
    provenance: dict[str, str] = Field(default_factory=dict, max_length=64)
    outside_card: tuple[str, ...] = Field(default=(), max_length=64)
    withheld: dict[str, str] = Field(default_factory=dict, max_length=128)
    files: dict[str, str]

    @property
    def types(self) -> tuple[str, ...]:
        """Types of cells that were analyzed."""
        return () if self.cells is None else self.cells.types

    @property
    def columns(self) -> dict[str, str]:
        """Units of the cells' columns, by name."""
        return {} if self.cells is None else self.cells.columns


def multipolygon(shapes: Iterable[Any]) -> Any:
    """Return the union of polygons as a valid multipolygon, dropping leftover lines and points.

    Self-intersecting outlines are repaired by the even-odd rule.
    """
    valid = shapely.make_valid(np.array(list(shapes), dtype=object))
    merged = shapely.union_all(valid)
    parts = shapely.get_parts(shapely.get_parts(merged))
    return shapely.multipolygons(parts[shapely.get_type_id(parts) == shapely.GeometryType.POLYGON])


def shape_map(
    kind_of_map: type[M], shapes: Sequence[Any], names: Sequence[str], kinds: Sequence[str] = ()
) -> M:
    """Build a map of shapes from the name of each shape's kind.

    `kinds` are additional kinds that were analyzed, even if not found.
    """
    known = tuple(dict.fromkeys([*kinds, *names]))
    codes = np.array([known.index(name) for name in names], dtype=np.int64)
    held = np.empty(len(shapes), dtype=object)
    held[:] = list(shapes)
    return kind_of_map(held, known, codes)


def write_maps(maps: SlideMaps, folder: Path) -> Path:
    """Write a slide's maps as a folder; the manifest, written last, marks it as complete.

    Raises `InputError` if a name contains anything but lower-case letters, digits and
    underscores.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MANIFEST).unlink(missing_ok=True)
    files = {}
    if maps.window is not None:
        parts = [] if maps.window.is_empty else [maps.window]
        files["window.geojson"] = _write_shapes(folder, "window", parts, ["window"] * len(parts))
    for name, shapes in (("objects", maps.objects), ("regions", maps.regions)):
        if shapes is not None:
            kinds = [shapes.kinds[code] for code in shapes.codes]
            files[f"{name}.geojson"] = _write_shapes(folder, name, shapes.shapes, kinds)
    if maps.cells is not None:
        files["cells.parquet"] = _write_cells(folder / "cells.parquet", maps.cells)
    try:
        manifest = Held(
            format=FORMAT,
            unit="um",
            slide=maps.slide,
            patient=maps.patient,
            mpp=maps.mpp,
            area_um2=maps.area_um2,
            cells=None if maps.cells is None else _about_cells(maps.cells),
            objects=_about_shapes(maps.objects),
            regions=_about_shapes(maps.regions),
            provenance=dict(maps.provenance),
            outside_card=maps.outside_card,
            withheld=dict(maps.withheld),
            files=files,
        )
    except ValidationError as error:
        raise InputError(f"{maps.slide}: {explain_validation(error)}") from None
    write_json(folder / MANIFEST, manifest)
    return folder


def read_maps(folder: Path) -> SlideMaps:
    """Read maps written by `write_maps`.

    Raises `InputError` if the folder is incomplete, or a file differs from the manifest.
    """
    manifest = held_in(folder)
    for name, digest in manifest.files.items():
        if name not in ("cells.parquet", "objects.geojson", "regions.geojson", "window.geojson"):
            raise InputError(f"{folder / MANIFEST}: unexpected file name {name!r}")
        if not (folder / name).is_file():
            raise InputError(f"{folder}: {name} is missing; import or compute the maps again")
        if hash_file(folder / name) != digest:
            raise InputError(f"{folder / name} was changed after it was written; create it again")
    window = None
    if "window.geojson" in manifest.files:
        window = multipolygon(_read_shapes(folder / "window.geojson")[0])
    return SlideMaps(
        slide=manifest.slide,
        patient=manifest.patient,
        window=window,
        cells=None if manifest.cells is None else _read_cells(folder, manifest.cells),
        objects=_read_map(ObjectMap, folder / "objects.geojson", manifest.objects),
        regions=_read_map(RegionMap, folder / "regions.geojson", manifest.regions),
        mpp=manifest.mpp,
        provenance=manifest.provenance,
        outside_card=manifest.outside_card,
        withheld=manifest.withheld,
    )


def name_folder(slide: str) -> str:
    """Return a folder name for a slide, replacing everything but letters, digits and "._-"."""
    name = "".join(c if c.isalnum() or c in "._-" else "_" for c in slide).lstrip(".")
    return name or "slide"


def list_maps(root: Path) -> list[Path]:
    """Find the map folders below a folder, at any depth, in name order.

    Raises `InputError` if there are none.
    """
    found = sorted(path.parent for path in root.rglob(MANIFEST))
    if not found:
        raise InputError(f"{root}: contains no map folders (with {MANIFEST})")
    return found


def held_in(folder: Path) -> Held:
    """Read the contents of a slide's maps from the manifest only.

    Raises `InputError` if the folder has no readable manifest.
    """
    path = folder / MANIFEST
    try:
        return Held.model_validate_json(path.read_bytes())
    except OSError:
        raise InputError(f"{folder}: {MANIFEST} not found, so this is not a map folder") from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain_validation(error)}") from None


def _about_cells(cells: CellMap) -> _Cells:
    columns = {name: column.unit for name, column in cells.columns.items()}
    known = cells.probabilities is not None
    return _Cells(types=cells.types, columns=columns, probabilities=known, count=len(cells))


def _about_shapes(shapes: ShapeMap | None) -> _Shapes | None:
    return None if shapes is None else _Shapes(kinds=shapes.kinds, count=len(shapes))


def _write_cells(path: Path, cells: CellMap) -> str:
    import pyarrow as pa
    from pyarrow import parquet

    names = np.array([*cells.types, None], dtype=object)
    columns: dict[str, Any] = {
        "x_um": cells.x_um,
        "y_um": cells.y_um,
        "type": pa.array(names[cells.codes], type=pa.string()).dictionary_encode(),
    }
    if cells.probabilities is not None:
        columns |= {f"p:{name}": cells.probabilities[:, i] for i, name in enumerate(cells.types)}
    columns |= {f"c:{name}": column.values for name, column in cells.columns.items()}
    with replacing(path) as part:
        parquet.write_table(pa.table(columns), part, compression="zstd")
    return hash_file(path)


def _read_cells(folder: Path, about: _Cells) -> CellMap:
    from pyarrow import ArrowInvalid, parquet

    path = folder / "cells.parquet"
    try:
        table = parquet.read_table(path)
    except (ArrowInvalid, OSError) as error:
        raise InputError(f"{path}: not a Parquet table: {error}") from None

    def numbers(name: str) -> F64:
        try:
            values = table.column(name).to_numpy()
            return np.asarray(values, dtype=np.float64)
        except (KeyError, TypeError, ValueError):
            raise InputError(f"{path}: numeric column {name!r} is required") from None

    if table.num_rows != about.count:
        raise InputError(
            f"{path}: contains {table.num_rows} cells, but {MANIFEST} lists {about.count}"
        )
    if "type" not in table.column_names:
        raise InputError(f"{path}: column 'type' is required")
    place = {name: code for code, name in enumerate(about.types)} | {None: -1}
    try:
        encoded = table.column("type").combine_chunks().dictionary_encode()
        codes = np.array([place[name] for name in encoded.dictionary.to_pylist()], dtype=np.int64)
    except KeyError as error:
        raise InputError(f"{path}: type {error} is not listed in {MANIFEST}") from None
    index = np.asarray(encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False), dtype=np.int64)
    return CellMap(
        numbers("x_um"),
        numbers("y_um"),
        about.types,
        np.append(codes, -1)[index],
        np.column_stack([numbers(f"p:{name}") for name in about.types])
        if about.probabilities
        else None,
        {name: Column(numbers(f"c:{name}"), unit) for name, unit in about.columns.items()},
    )


def _write_shapes(folder: Path, name: str, shapes: Iterable[Any], kinds: Sequence[str]) -> str:
    lines = [
        json.dumps(
            {
                "type": "Feature",
                "geometry": json.loads(shapely.to_geojson(shape)),
                "properties": {"objectType": "annotation", "classification": {"name": kind}},
            },
            separators=(",", ":"),
        )
        for shape, kind in zip(shapes, kinds, strict=True)
    ]
    text = '{"type":"FeatureCollection","features":[\n' + ",\n".join(lines) + "\n]}\n"
    write_bytes(folder / f"{name}.geojson", text.encode())
    return hash_file(folder / f"{name}.geojson")


def _read_shapes(path: Path) -> tuple[list[Any], list[str]]:
    shapes: list[Any] = []
    kinds: list[str] = []
    for thing in read_objects(path).objects:
        parts = [shapely.Polygon(p.exterior, p.holes) for p in thing.polygons]
        if parts:
            shapes.append(parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts))
        else:
            shapes.append(shapely.Point(thing.points[0]))
        kinds.append(thing.label)
    return shapes, kinds


def _read_map(kind_of_map: type[M], path: Path, about: _Shapes | None) -> M | None:
    if about is None:
        return None
    shapes, names = _read_shapes(path)
    if len(shapes) != about.count:
        raise InputError(
            f"{path}: contains {len(shapes)} shapes, but {MANIFEST} lists {about.count}"
        )
    if unknown := sorted(set(names) - set(about.kinds)):
        raise InputError(f"{path}: kind {unknown[0]!r} is not listed in {MANIFEST}")
    return shape_map(kind_of_map, shapes, names, about.kinds)


def _require_areas(where: str, shapes: AnyArray) -> None:
    areal = (shapely.GeometryType.POLYGON, shapely.GeometryType.MULTIPOLYGON)
    if not np.isin(shapely.get_type_id(shapes), areal).all():
        raise InputError(f"{where}: only polygons are allowed")
    if not shapely.is_valid(shapes).all():
        raise InputError(f"{where}: an outline intersects itself; repair it with multipolygon()")


def _check_finite(where: str, *arrays: F64) -> None:
    if not all(np.isfinite(array).all() for array in arrays):
        raise InputError(f"{where}: coordinates must be finite numbers in µm")
    if any(len(array) and np.abs(array).max() > FARTHEST_UM for array in arrays):
        raise InputError(
            f"{where}: a coordinate is more than {FARTHEST_UM / 1000000.0:g} m from the corner"
        )


def _bounds(shapes: AnyArray) -> F64:
    """Return the bounds of the non-empty shapes, in µm."""
    return np.asarray(shapely.bounds(shapes[~shapely.is_empty(shapes)]), dtype=np.float64)


def _check_codes(where: str, codes: I64, names: int, lowest: int) -> None:
    if len(codes) and not lowest <= codes.min() <= codes.max() < names:
        raise InputError(f"{where}: a type or kind is not listed")


class MapsOnDisk:
    """Maps stored in folders, read slide by slide each time they are iterated."""

    def __init__(self, root: Path, patients: Collection[str] | None = None) -> None:
        named = [(held_in(folder), folder) for folder in list_maps(root)]
        named = [
            (held, folder) for held, folder in named if patients is None or held.patient in patients
        ]
        if not named:
            raise InputError(f"{root}: none of the maps belong to patients in the cohort")
        self._named = sorted(named, key=lambda pair: (pair[0].patient, pair[0].slide, pair[1]))

    def spread(self, count: int, seed: int) -> list[SlideMaps]:
        """Read the maps for `count` slides, drawn at random from `count` parts, one from each."""
        ends = np.linspace(0, len(self._named), min(count, len(self._named)) + 1).astype(int)
        draw = generator(seed)
        chosen = [int(draw.integers(low, high)) for low, high in pairwise(ends.tolist())]
        return [read_maps(self._named[place][1]) for place in chosen]

    def __len__(self) -> int:
        return len(self._named)

    def __iter__(self) -> Iterator[SlideMaps]:
        return (read_maps(folder) for _, folder in self._named)

    @property
    def held(self) -> list[Held]:
        """Contents of each slide's maps."""
        return [held for held, _ in self._named]

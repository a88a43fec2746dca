"""A slide: metadata, pixels at any resolution, and tiles.

Coordinates are x, y in level-0 pixels.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal, Self

import numpy as np

from mcp_servers.lazy import cv2
from mcp_servers.slides.arrays import U8
from mcp_servers.slides.folders import open_folder
from mcp_servers.slides.layout import UNREADABLE, UnsupportedError, open_layout
from mcp_servers.slides.metadata import (
    PLAUSIBLE_MPP,
    SCAN_MPP,
    PixelSizeError,
    aperio_mpp,
    number_pair,
)
from mcp_servers.slides.others import ImageSource, OpenSlideSource
from mcp_servers.slides.source import Level, Source, doubt_bright_field, refuse_discolored
from mcp_servers.slides.tiff import TiffSource
from mcp_servers.slides.view import View
from sage.core.errors import InputError

Backend = Literal["auto", "direct", "openslide", "image"]
MppSource = Literal["file", "override", "none"]
_MAGIC = {
    b"II*\0": "tiff",
    b"MM\0*": "tiff",
    b"II+\0": "tiff",
    b"MM\0+": "tiff",
    b"\x89PNG": "png",
    b"\xff\xd8\xff": "jpeg",
    b"BM": "bmp",
}


ONE_UM = 10.0
"""Objective power at which a scan's pixel is about 1 µm."""
POWER_TOLERANCE = 1.4
"""Factor by which the pixel size may differ from the usual value for the stated objective."""
GLANCE_PX = 1 << 25
"""Maximum size, in pixels, of a level that is read in full to check the colors."""
MPP_TOLERANCE = 0.05
"""Relative difference between the caller's and the file's pixel size that is tolerated.

Larger differences cause a warning.
"""


@dataclass
class Slide:
    """An open slide, used as a context manager; reading is thread-safe."""

    path: Path
    format: str
    source: Source = field(init=False)
    mpp: float | None = None
    mpp_source: MppSource = "none"
    objective_power: float | None = None
    associated: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    mpp_conflict: str = ""
    colors: str = "rgb"
    threads: int = 2
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    _unlike: dict[bool, str] = field(default_factory=dict, repr=False)

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        mpp: float | None = None,
        backend: Backend = "auto",
        threads: int | None = None,
    ) -> Self:
        """Open a slide or image.

        Raises `InputError` if the file is missing, empty, not an image, truncated, or without
        data; or if `mpp` is not plausible.

        Parameters
        ----------
        mpp : µm per level-0 pixel; overrides the file's value and is recorded as an override
        backend : `auto` decodes directly if a tile equals OpenSlide's pixel for pixel
        threads : decoding threads; if None, the number of CPUs up to 4
        """
        path = Path(path)
        if mpp is not None and not PLAUSIBLE_MPP[0] <= mpp <= PLAUSIBLE_MPP[1]:
            raise InputError(
                f"mpp {mpp:g} is outside the range {PLAUSIBLE_MPP[0]:g}-{PLAUSIBLE_MPP[1]:g} µm "
                "per pixel; a 40x scan has about 0.25, a 20x scan about 0.5."
            )
        kind = _kind(path)
        workers = threads or min(4, os.cpu_count() or 1)
        slide = cls(path, kind, threads=workers)
        slide._attach(kind, backend)
        try:
            refuse_discolored(path, slide.source)
            slide._read_metadata()
            if mpp is not None:
                slide._override(mpp)
        except InputError:
            slide.close()
            raise
        return slide

    def _override(self, mpp: float) -> None:
        """Use the caller's pixel size; if the file states a different size, results report both.

        The caller's size also settles a doubtful size in the file.
        """
        self.mpp_conflict = ""
        if self.mpp is not None and abs(mpp - self.mpp) > MPP_TOLERANCE * self.mpp:
            note = (
                f"the pixel size was set to {mpp:g} µm, but the file states {self.mpp:g}: areas "
                f"differ by a factor of {(mpp / self.mpp) ** 2:.3g}"
            )
            self.mpp_conflict = note
            self.warnings = (*self.warnings, note)
        self.mpp, self.mpp_source = float(mpp), "override"

    def _attach(self, kind: str, backend: Backend) -> None:
        """Choose and open the reader; on failure, nothing is left open."""
        if kind == "folder":
            self.source = open_folder(self.path)
            self.format, self.warnings = self.source.format, self.source.notes
            return
        if kind in {"png", "jpeg", "bmp"} or backend == "image":
            image = ImageSource(self.path)
            self.source, self.warnings = image, image.warnings
            suffix = self.path.suffix.lower()
            if suffix in {".svs", ".tif", ".tiff", ".ndpi", ".mrxs", ".scn"} and kind != "tiff":
                note = f"named {suffix} but its content is {kind.upper()}"
                self.warnings = (*self.warnings, note)
            return
        direct: TiffSource | None = None
        reason = ""
        if kind == "tiff" and backend != "openslide":
            try:
                direct = TiffSource(self.path, self._threads)
            except UnsupportedError as error:
                reason = str(error)
                if backend == "direct":
                    raise InputError(f"{self.path}: not directly decodable: {error}") from error
        reference: OpenSlideSource | None = None
        if backend != "direct":
            try:
                reference = OpenSlideSource(self.path)
            except InputError:
                if direct is None and kind != "tiff":
                    raise
        if direct is not None and direct.mislabeled:  # OpenSlide believes the tag
            note = (
                "its JPEG streams are YCbCr under a tag of RGB, or the reverse; read "
                "according to the streams"
            )
            self.warnings = (*self.warnings, note)
        if direct is not None and (
            reference is None
            or direct.mislabeled
            or (direct.layout.converted and reference.is_generic)
            or _agree(direct, reference)
        ):
            self.source = direct
            self.warnings = (*self.warnings, *direct.notes)
            if reference is not None:
                self.associated = reference.associated
                reference.close()
        elif reference is not None and not (reference.is_generic and _is_elsewhere(self.path)):
            self.source = reference
            self.associated = reference.associated
            if direct is not None:
                direct.close()
        else:
            if reference is not None:
                reference.close()
            try:
                image = ImageSource(self.path)
            except InputError as error:
                if not reason.startswith(UNREADABLE):
                    raise
                raise InputError(
                    f"{self.path}: has a TIFF header, but {reason}; it is truncated or "
                    "damaged. Copy it again."
                ) from error
            self.source = image
            self.warnings = (*image.warnings, f"read into memory as a whole ({reason})")

    def _read_metadata(self) -> None:
        properties: dict[str, str] = {}
        description, layout = "", None
        if isinstance(self.source, OpenSlideSource):
            properties = self.source.properties
            description = properties.get("tiff.ImageDescription", "")
            self.format = properties.get("openslide.vendor", self.format)
        elif isinstance(self.source, TiffSource | ImageSource):
            layout = self.source.layout
        if isinstance(self.source, ImageSource):
            self.colors = self.source.colors.kind
        if layout is not None:
            self.colors, description = layout.colors.kind, layout.description
            self.format = "aperio" if description.startswith("Aperio") else "tiff"
            self.format = "ome-tiff" if layout.is_ome else self.format
        pairs = [
            layout.mpp if layout is not None and layout.is_ome else None,
            number_pair(properties.get("openslide.mpp-x"), properties.get("openslide.mpp-y")),
            aperio_mpp(description),
            layout.mpp if layout is not None else None,
            getattr(self.source, "mpp", None),
        ]
        pair = next((p for p in pairs if p is not None), None)
        if pair is not None:
            if abs(pair[0] - pair[1]) > 0.02 * max(pair):
                note = f"pixels are not square ({pair[0]:g} x {pair[1]:g} µm); their mean is used"
                self.warnings = (*self.warnings, note)
            self.mpp, self.mpp_source = (pair[0] + pair[1]) / 2, "file"
        power = re.search(r"AppMag\s*=\s*([\d.]+)", description)
        text = properties.get("openslide.objective-power") or (power.group(1) if power else None)
        with suppress(TypeError, ValueError):
            self.objective_power = float(text) if text else layout.power if layout else None
        if self.mpp and not SCAN_MPP[0] <= self.mpp <= SCAN_MPP[1]:
            self.mpp_conflict = (
                f"the file states {self.mpp:g} µm per pixel, which no scan of tissue has "
                f"({SCAN_MPP[0]:g}-{SCAN_MPP[1]:g})"
            )
        elif self.mpp and self.objective_power and self.objective_power > 0:
            usual = ONE_UM / self.objective_power
            if not 1 / POWER_TOLERANCE <= self.mpp / usual <= POWER_TOLERANCE:
                self.mpp_conflict = (
                    f"the file states {self.mpp:g} µm per pixel and an objective of "
                    f"{self.objective_power:g}x, which usually has {usual:g}: one of them is "
                    "wrong"
                )
        if self.mpp_conflict:
            self.warnings = (*self.warnings, self.mpp_conflict)
            self.mpp, self.mpp_source = None, "none"

    # -- properties ---------------------------------------------------------------------------

    @property
    def width(self) -> int:
        """Width in level-0 pixels."""
        return self.source.levels[0].width

    @property
    def height(self) -> int:
        """Height in level-0 pixels."""
        return self.source.levels[0].height

    @property
    def levels(self) -> tuple[Level, ...]:
        """Stored resolution levels, finest first."""
        return self.source.levels

    @property
    def name(self) -> str:
        """File name without its extensions; bytes that are not text are replaced."""
        return slide_name(self.path)

    def need_mpp(self) -> float:
        """Return the µm per level-0 pixel; raises `PixelSizeError`, with the remedy, if unknown."""
        if self.mpp is None:
            doubt = self.mpp_conflict or (
                "the file does not state its pixel size (µm per pixel), or states an implausible "
                "one"
            )
            raise PixelSizeError(
                f"{self.path}: {doubt}. Set mpp, or on the command line use --mpp 0.25 or "
                "--set mpp=0.25 (a 40x scan has about 0.25, a 20x scan about 0.5); the "
                "value is recorded as an override."
            )
        return self.mpp

    def unlike_stain(self, *, gray: bool = False) -> str:
        """Describe why this is not a bright-field color image; return an empty string if it is.

        The check uses the sample layout first, then the colors of a small read. With `gray`,
        grayscale is accepted.
        """
        if self.colors == "channels":
            return next(note for note in self.warnings if "channels" in note)
        if self.colors == "gray" and not gray:
            return "a grayscale image"
        if gray not in self._unlike:
            self._unlike[gray] = doubt_bright_field(self._glance(), gray=gray)
        return self._unlike[gray]

    def need_stain(self, *, gray: bool = False) -> None:
        """Raise `InputError` if this is not a bright-field color image (see `unlike_stain`)."""
        if doubt := self.unlike_stain(gray=gray):
            raise InputError(
                f"{self.path}: {doubt}; a bright-field RGB image of stained tissue is required. "
                "slide_thumbnail shows the image"
            )

    def _glance(self) -> U8:
        """Read the slide at low resolution, or sample fields if no level is small enough."""
        coarsest = self.levels[-1]
        if coarsest.width * coarsest.height <= GLANCE_PX:
            return self.thumbnail(512)
        spread = [
            self.source.read(len(self.levels) - 1, int(x), int(y), 64, 64)
            for y in np.linspace(0, coarsest.height - 64, 12)
            for x in np.linspace(0, coarsest.width - 64, 12)
        ]
        return np.concatenate(spread)

    # -- pixels -------------------------------------------------------------------------------

    def read(self, x: int, y: int, width: int, height: int, level: int = 0) -> U8:
        """Read a rectangle as RGB, with its corner in level-0 pixels and size in level pixels.

        Raises `InputError` if the level does not exist, or the rectangle is empty or too large.
        """
        if not 0 <= level < len(self.levels):
            raise InputError(
                f"{self.path}: level must be between 0 and {len(self.levels) - 1}, got {level}"
            )
        if width < 1 or height < 1:
            raise InputError(f"a region must have a positive size, got {width} x {height} px")
        if width * height > 400_000_000:
            raise InputError(
                f"a region of {width} x {height} px does not fit into memory; read it at a lower "
                "resolution or in parts."
            )
        ratio = self.levels[level].downsample
        return self.source.read(level, round(x / ratio), round(y / ratio), width, height)

    def view(self, mpp: float, *, tolerance: float = 0.03) -> View:
        """Return a view of the whole slide at a resolution in µm per pixel (see `View`)."""
        return self.scale_to(mpp / self.need_mpp(), tolerance=tolerance)

    def scale_to(self, scale: float, *, tolerance: float = 0.03) -> View:
        """Return a view at `scale` level-0 pixels per pixel; never finer than level 0.

        If a stored level (or a half, quarter or eighth of a level) is within `tolerance` of the
        requested scale, it is used unchanged, and the view's `scale` gives its actual scale.
        """
        scale = max(scale, 1.0)
        candidates = [k for k, level in enumerate(self.levels) if level.downsample <= scale * 1.03]
        level = candidates[-1] if candidates else 0
        ratio = self.levels[level].downsample
        residual = scale / ratio
        reduce = max((r for r in (1, 2, 4, 8) if r <= residual * (1 + tolerance)), default=1)
        exact = ratio * reduce
        if abs(exact / scale - 1) <= tolerance:
            return View(self, level, reduce, exact, 1.0)
        return View(self, level, reduce, scale, scale / exact)

    def thumbnail(self, max_px: int = 1024) -> U8:
        """Read the whole slide, shrunk so that its longer side is at most `max_px` pixels."""
        if not 1 <= max_px <= 16384:
            raise InputError(f"max_px must be between 1 and 16384, got {max_px}")
        view = self.scale_to(max(1.0, max(self.width, self.height) / max_px))
        image = view.read(0, 0, view.width, view.height)
        return fit(image, max_px)

    def tiles(self, corners: Iterable[Sequence[int]], size: int) -> Iterator[U8]:
        """Yield square level-0 tiles in the order of their corners, decoded in parallel.

        Tiles that extend beyond the slide are filled with white. Raises `InputError` unless `size`
        is from 1 to 8192 pixels.
        """
        if size < 1 or size > 8192:
            raise InputError(f"tile size must be between 1 and 8192 px, got {size}")
        waiting: list[Future[list[U8]]] = []

        def part(chunk: list[Sequence[int]]) -> list[U8]:
            return [self.source.read(0, int(x), int(y), size, size) for x, y in chunk]

        pool = ThreadPoolExecutor(self.threads, thread_name_prefix="tiles")
        try:
            limit = max(2, min(128, 400_000_000 // (size * size * 3) // 2) // 16)
            rest = iter(corners)
            while chunk := list(islice(rest, 16)):
                waiting.append(pool.submit(part, chunk))
                if len(waiting) > limit:
                    yield from waiting.pop(0).result()
            for future in waiting:
                yield from future.result()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    # -- closing ------------------------------------------------------------------------------

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="slide")
        return self._pool

    def close(self) -> None:
        """Close the file."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None
        self.source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def slide_name(path: Path) -> str:
    """Derive a slide's name from its file name, without extensions and as portable text."""
    name = path.name.removesuffix(path.suffix).removesuffix(".ome")
    return os.fsencode(name).decode("utf-8", "replace")


def fit(image: U8, max_px: int) -> U8:
    """Shrink an image so that its longer side is at most `max_px`."""
    height, width = image.shape[:2]
    factor = max(height, width) / max_px
    if factor <= 1:
        return image

    size = (max(1, round(width / factor)), max(1, round(height / factor)))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), dtype=np.uint8)


def _is_elsewhere(path: Path) -> bool:
    """Check whether a TIFF's slide differs from the RGB image that OpenSlide would read."""
    with suppress(UnsupportedError), open_layout(path) as layout:
        return layout.converted or layout.orientation != 1
    return False


def _kind(path: Path) -> str:
    """Detect a file's kind from its first bytes; raises `InputError` if it cannot be a slide."""
    if path.is_dir():
        return "folder"
    try:
        with path.open("rb") as stream:
            head = stream.read(8)
    except OSError as error:
        raise InputError(f"{path}: cannot be opened: {error.strerror}") from error
    if not head:
        raise InputError(f"{path}: the file is empty")
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), "other")


def _agree(direct: TiffSource, reference: OpenSlideSource) -> bool:
    """Check that both readers find the same levels and equal pixels at the first and last."""
    sizes = [(level.width, level.height) for level in direct.levels]
    theirs_sizes = [(level.width, level.height) for level in reference.levels]
    if direct.layout.is_ome:  # OpenSlide does not look into the sub-directories of OME-TIFF
        sizes = sizes[: len(theirs_sizes)]
    if sizes != theirs_sizes or direct.has_gaps():
        return False
    for level in {0, len(sizes) - 1}:
        at = direct.first_tile(level) if level == 0 else (0, 0, 64, 64)
        if at is None:
            return False
        x, y, width, height = at
        theirs = reference.read(level, x, y, width, height)
        if not np.array_equal(direct.read(level, x, y, width, height), theirs):
            return False
    return True

"""Pixel size from file metadata: Aperio, OME-XML, TIFF resolution."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sage.core.errors import InputError


class PixelSizeError(InputError):
    """The file does not state its pixel size, which the requested operation needs."""


PLAUSIBLE_MPP = (0.02, 100.0)
"""Plausible range of µm per pixel for a tissue scan (a default of 72 dpi gives 353)."""


SCAN_MPP = (0.08, 4.0)
"""Range of µm per pixel accepted from a file; the caller must confirm other values."""


def number_pair(x: object, y: object) -> tuple[float, float] | None:
    """Return two plausible pixel sizes in µm, or None."""
    try:
        pair = (float(str(x)), float(str(y)))
    except ValueError:
        return None
    plausible = all(PLAUSIBLE_MPP[0] <= v <= PLAUSIBLE_MPP[1] for v in pair)
    return pair if plausible else None


def aperio_mpp(description: str) -> tuple[float, float] | None:
    """Parse `MPP = ...` in descriptions by Aperio scanners and others that imitate them."""
    found = re.search(r"\bMPP\s*=\s*([\d.,]+)", description)
    if found is None:
        return None
    value = found.group(1).replace(",", ".")
    return number_pair(value, value)


def resolution_mpp(tags: dict[str, object]) -> tuple[float, float] | None:
    """Compute the pixel size from TIFF resolution tags, if the size is plausible for a scan."""
    code = tags.get("ResolutionUnit")
    unit = {2: 25400.0, 3: 10000.0}.get(int(code)) if isinstance(code, int) else None
    values = []
    for name in ("XResolution", "YResolution"):
        ratio = tags.get(name)
        if unit is None or not isinstance(ratio, tuple) or len(ratio) != 2 or not all(ratio):
            return None
        values.append(unit * ratio[1] / ratio[0])
    # a resolution tag coarser than a microscope's is a printer's default, not a scan's
    return number_pair(values[0], values[1]) if max(values) <= 20 else None


def imagej_mpp(about: dict[str, Any], tags: dict[str, Any]) -> tuple[float, float] | None:
    """Compute the pixel size from the resolution tags, in the unit given in ImageJ metadata."""
    unit = str(about.get("unit", "")).replace("\\u00B5", "µ")
    factor = {"micron": 1.0, "microns": 1.0, **_UNITS}.get(unit)
    ratios = [tags.get("XResolution"), tags.get("YResolution")]
    if factor is None or not all(isinstance(ratio, tuple) and all(ratio) for ratio in ratios):
        return None
    return number_pair(*(factor * ratio[1] / ratio[0] for ratio in ratios if ratio))


_UNITS = {"µm": 1.0, "μm": 1.0, "um": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4}


def _find_pixels(xml: str, size: tuple[int, int] | None) -> Any:
    """Find the OME-XML description of the image with this width and height, or else the first."""
    from defusedxml import ElementTree

    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return None
    found = [element for element in root.iter() if element.tag.rpartition("}")[2] == "Pixels"]
    own = [e for e in found if size and (e.get("SizeX"), e.get("SizeY")) == (*map(str, size),)]
    return next(iter([*own, *found]), None)


def ome_mpp(xml: str, size: tuple[int, int] | None = None) -> tuple[float, float] | None:
    """Read the pixel size of the image with this width and height from OME-XML."""
    pixels = _find_pixels(xml, size)
    if pixels is None:
        return None
    values = []
    for axis in "XY":
        stated = pixels.get(f"PhysicalSize{axis}")
        factor = _UNITS.get(pixels.get(f"PhysicalSize{axis}Unit", "µm"))
        if stated is None or factor is None:
            return None
        values.append(float(stated) * factor)
    return number_pair(values[0], values[1])


def find_channels(xml: str, size: tuple[int, int]) -> tuple[tuple[str, ...], int | None]:
    """Read an image's channel names and significant bits from OME-XML."""
    pixels = _find_pixels(xml, size)
    if pixels is None:
        return (), None
    bits = str(pixels.get("SignificantBits") or "")
    names = tuple(
        str(element.get("Name") or "")
        for element in pixels
        if element.tag.rpartition("}")[2] == "Channel"
    )
    return names, int(bits) if bits.isdecimal() else None


def find_magnification(xml: str) -> float | None:
    """Read the magnification of the only objective from OME-XML."""
    found = set(re.findall(r'NominalMagnification="([0-9.]+)"', xml))
    return float(found.pop()) if len(found) == 1 else None


def open_tiff(path: Path) -> Any:
    """Open only the TIFF file itself, without planes stored in other files (OME, Micro-Manager).

    Those could be any files on this machine, outside the roots.
    """
    import tifffile

    return tifffile.TiffFile(path, _multifile=False, is_ndtiff=False, is_mmstack=False)

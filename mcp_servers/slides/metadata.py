"""Pixel size from file metadata: Aperio, OME-XML, TIFF resolution."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from sage.core.errors import InputError


class PixelSizeError(InputError):
    """The file does not state its pixel size, which the requested operation needs."""


PLAUSIBLE_MPP = (0.02, 100.0)
"""Plausible range of µm per pixel for a scan of tissue (a default of 72 dpi gives 353)."""


def number_pair(x: object, y: object) -> tuple[float, float] | None:
    """Return two plausible sizes in µm, or None."""
    try:
        pair = (float(str(x)), float(str(y)))
    except ValueError:
        return None
    plausible = all(PLAUSIBLE_MPP[0] <= v <= PLAUSIBLE_MPP[1] for v in pair)
    return pair if plausible else None


def aperio_mpp(description: str) -> tuple[float, float] | None:
    """Parse `MPP = ...` in an Aperio description."""
    found = re.search(r"MPP\s*=\s*([\d.,]+)", description)
    if found is None:
        return None
    value = found.group(1).replace(",", ".")
    return number_pair(value, value)


def resolution_mpp(tags: dict[str, object]) -> tuple[float, float] | None:
    """Compute the pixel size from TIFF resolution tags, if they are those of a scan."""
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


def ome_mpp(xml: str) -> tuple[float, float] | None:
    """Read PhysicalSizeX and PhysicalSizeY from OME-XML."""
    from defusedxml import ElementTree

    try:
        root = ElementTree.fromstring(xml)
    except ElementTree.ParseError:
        return None
    pixels = next((e for e in root.iter() if e.tag.endswith("}Pixels") or e.tag == "Pixels"), None)
    if pixels is None:
        return None
    values = []
    for axis in "XY":
        size = pixels.get(f"PhysicalSize{axis}")
        unit = pixels.get(f"PhysicalSize{axis}Unit", "µm")
        factor = {"µm": 1.0, "μm": 1.0, "um": 1.0, "nm": 1e-3, "mm": 1e3, "cm": 1e4}.get(unit)
        if size is None or factor is None:
            return None
        values.append(float(size) * factor)
    return number_pair(values[0], values[1])


def open_tiff(path: Path) -> Any:
    """Open the TIFF file alone, without planes stored in other files (OME, Micro-Manager).

    Those could be any files on this machine, outside the roots.
    """
    import tifffile

    return tifffile.TiffFile(path, _multifile=False, is_ndtiff=False, is_mmstack=False)


def tiff_tags(path: Path) -> tuple[str, dict[str, object]]:
    """Return the description and the pixel-size tags of a TIFF file."""
    with open_tiff(path) as file:
        page = file.pages[0]
        tags: dict[str, object] = {"ome": file.ome_metadata if file.is_ome else None}
        for name in ("XResolution", "YResolution", "ResolutionUnit"):
            tag = page.tags.get(name)
            tags[name] = None if tag is None else tag.value
        return str(getattr(page, "description", "") or ""), tags

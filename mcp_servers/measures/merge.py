"""Merging of a slide's maps from several files, such as cells and objects from two programs."""

from __future__ import annotations

from typing import Any

from mcp_servers.measures.maps import SlideMaps
from sage.core.errors import InputError

PARTS = ("window", "cells", "objects", "regions")


def merge_maps(held: SlideMaps, new: SlideMaps, *, replace: bool = False) -> SlideMaps:
    """Merge existing and new maps; each part comes from one or the other, never both.

    Parameters
    ----------
    replace : use the new part if both have it

    Raises
    ------
    InputError
        If the maps are of different patients, or both have a part and `replace` is false.
    """
    if held.patient != new.patient:
        raise InputError(
            f"{new.slide}: the existing maps are of patient {held.patient}, these of "
            f"{new.patient}; give the patient (--patient), or use another --out"
        )
    parts: dict[str, Any] = {}
    provenance = dict(held.provenance)
    for part in PARTS:
        old, given = getattr(held, part), getattr(new, part)
        if old is not None and given is not None and not replace:
            raise InputError(
                f"{new.slide}: {part} already exist ({held.provenance.get(part, 'unknown')}); "
                "use --replace, or another --out"
            )
        parts[part] = given if given is not None else old
        if given is not None and part in new.provenance:
            provenance[part] = new.provenance[part]
    return SlideMaps(
        slide=new.slide,
        patient=new.patient,
        **parts,
        mpp=held.mpp if new.mpp is None else new.mpp,
        provenance=provenance,
        outside_card=tuple(dict.fromkeys((*held.outside_card, *new.outside_card))),
    )

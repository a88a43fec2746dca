"""Packages with a long import time, imported on first use."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class LazyPackage:
    """A package imported when any attribute other than a special attribute is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # the module that holds this is being inspected
            raise AttributeError(attribute)
        return getattr(import_module(self._name), attribute)


cv2: Any = LazyPackage("cv2")
shapely: Any = LazyPackage("shapely")

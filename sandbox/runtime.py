"""The Python inside a sandbox: the host's interpreter and installed packages, read-only.

A small environment is written for each run: its interpreter is the host's, and its
site-packages folder has a `.pth` file that names the host's packages and SAGE's own
(`validation`). Neither PYTHONPATH nor a writable location is needed, and isolated mode
(`-I`) works.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from sage.core.errors import InputError
from sage.core.hashes import hash_files

OFFERED = ("validation", "sage.core")
"""SAGE packages that analysis code can import: the analysis and its dependencies."""
OURS = ("sage", "agents", "kg", "mcp_servers", "sandbox", "validation")
ENVIRONMENT = {
    "HOME": "/tmp",  # noqa: S108 - a path inside the sandbox, size-limited
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "MPLBACKEND": "Agg",
    "MPLCONFIGDIR": "/tmp/mpl",  # noqa: S108
    "NUMBA_CACHE_DIR": "/tmp/numba",  # noqa: S108
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMEXPR_MAX_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    "SAGE_INPUTS": "/inputs",
    "SAGE_OUTPUT": "/output",
    "TZ": "UTC",
    "USER": "sage",
}
"""Complete environment variables for the code.

Libraries use one thread each, which fixes the order of sums, so that the same code on the
same data gives identical bytes.
"""


def package_folders(names: Iterable[str]) -> dict[str, Path]:
    """Return the paths of the packages `names` in site-packages without importing them.

    Raises
    ------
    InputError
        If a package is not installed as a folder.
    """
    found = {}
    for name in names:
        top, *below = name.split(".")
        spec = importlib.util.find_spec(top) if top.isidentifier() else None
        places = (spec.submodule_search_locations if spec else None) or ()
        folder = next((Path(place).joinpath(*below) for place in places), None)
        if folder is None or not folder.is_dir():
            raise InputError(
                f'package "{name}" is not installed here, so it cannot be made available'
            )
        found["/".join((top, *below))] = folder.resolve()
    return found


def fingerprint(folder: Path) -> str:
    """Hash a package's files by relative name and content (SHA-256), excluding compiled files."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return hash_files((path for path in files if "__pycache__" not in path.parts), folder)


@lru_cache(maxsize=1)
def interpreter() -> Path:
    """Return the real interpreter behind `sys.executable`, with links resolved."""
    return Path(sys.executable).resolve()


def base_prefix() -> Path:
    """Return the folder with the interpreter and its standard library."""
    return Path(sys.base_prefix).resolve()


def site_folders() -> list[Path]:
    """Return the host's site-packages folders."""
    paths = sysconfig.get_paths()
    unique = dict.fromkeys(Path(paths[key]).resolve() for key in ("purelib", "platlib"))
    return [path for path in unique if path.is_dir()]


def installed_here(site: Path) -> list[str]:
    """List SAGE's own packages in a site-packages folder if SAGE is installed as a wheel."""
    return [name for name in OURS if (site / name).is_dir()]


def write_environment(folder: Path, search: Iterable[str]) -> None:
    """Write a Python environment to `folder` that finds packages in the `search` paths."""
    python = interpreter()
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / version / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "pyvenv.cfg").write_text(
        f"home = {python.parent}\ninclude-system-site-packages = false\n", encoding="utf-8"
    )
    for name in ("python", "python3"):
        (folder / "bin" / name).symlink_to(python)
    (site / "sage.pth").write_text("".join(f"{path}\n" for path in search), encoding="utf-8")

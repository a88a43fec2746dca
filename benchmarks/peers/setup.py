"""Make a peer's own environment, so that its pins do not meet SAGE's.

    python -m benchmarks.peers.setup histolab|lazyslide|tiatoolbox FOLDER [--python PYTHON]

makes FOLDER/NAME, a virtual environment with the peer from PyPI, for
`python -m benchmarks.slides --peers FOLDER`. LazySlide and tiatoolbox bring PyTorch, about 7 GB
each. Histolab pins NumPy 1.24 and needs Python 3.8-3.10.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

STEPS: dict[str, tuple[tuple[str, ...], ...]] = {
    # histolab pins an openslide-python that needs the library of the system; this one brings it
    "histolab": (("histolab==0.7.0",), ("--no-deps", "openslide-python>=1.4", "openslide-bin")),
    "lazyslide": (("lazyslide==0.13.0",),),
    "tiatoolbox": (("tiatoolbox==2.1.3",),),
}


def main() -> None:
    """Make the environment and install."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", choices=sorted(STEPS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default=sys.executable, help="interpreter to build it with")
    options = parser.parse_args()
    home = options.folder / options.name
    python = home / "bin" / "python"
    try:
        if not python.exists():
            subprocess.run([options.python, "-m", "venv", str(home)], check=True)
        for packages in STEPS[options.name]:
            subprocess.run([str(python), "-m", "pip", "install", *packages], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"{options.name} could not be installed in {home}: {error}")
    print(f"{options.name} is in {home}; use --peers {options.folder}")


if __name__ == "__main__":
    main()

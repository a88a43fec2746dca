"""What a sandbox costs per analysis, from start to result, and ten analyses at once.

    python benchmarks/sandbox.py            # a table
    python benchmarks/sandbox.py --check    # exit 1 where a limit is not met
    python benchmarks/sandbox.py --json

The analysis is trivial (it writes a file), so that the time is the sandbox's own. Beside it stands
the bare cost in the same run: the same program as a plain child process, and `docker run` on the
command line with no restriction and no result taken out.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sandbox.bubblewrap import Bubblewrap
from sandbox.docker_engine import IMAGE, DockerSandbox
from sandbox.types import Job, Limits, Sandbox

CODE = "open('/output/result.json', 'w').write('{}')\n"
LIMITS_SECONDS = {"docker": 1.5, "bubblewrap": 0.3}


def seconds(act: Callable[[], object]) -> float:
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def job(folder: Path) -> Job:
    return Job(
        files={"analysis.py": CODE},
        output=folder / "out",
        limits=Limits(seconds=120, memory_mb=512, pids=64, output_mb=16),
    )


def run(box: Sandbox, folder: Path) -> None:
    result = box.run(job(folder))
    if not result.ok or [artifact.path for artifact in result.artifacts] != ["result.json"]:
        raise SystemExit(f"{box.name}: {result.reason.value} {result.message}")


def measure(box: Sandbox, repeats: int, root: Path) -> dict[str, float]:
    run(box, root / "warm")
    times = [seconds(lambda n=n: run(box, root / f"one{n}")) for n in range(repeats)]
    with ThreadPoolExecutor(10) as pool:
        many = seconds(lambda: list(pool.map(lambda n: run(box, root / f"ten{n}"), range(10))))
    return {"median": statistics.median(times), "worst": max(times), "ten_at_once": many}


def bare(command: list[str], repeats: int) -> float:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    times = [
        seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL))
        for _ in range(repeats)
    ]
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    python = [sys.executable, "-I", "-c", "pass"]
    found: dict[str, dict[str, float]] = {
        "(plain child process)": {"median": bare(python, options.repeats)}
    }
    for box in (DockerSandbox(), Bubblewrap()):
        state = box.available()
        if not state.ok:
            print(f"{box.name} left out: {state.detail}", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as folder:
            found[box.name] = measure(box, options.repeats, Path(folder))
    if "docker" in found and shutil.which("docker"):
        plain = ["docker", "run", "--rm", "--network", "none", IMAGE, "python", "-c", "pass"]
        found["(docker run)"] = {"median": bare(plain, min(options.repeats, 5))}
    if options.json:
        print(json.dumps(found, indent=1))
    else:
        print(f"{'':24}{'median s':>10}{'worst s':>10}{'ten at once s':>15}")
        for name, times in found.items():
            cells = (times.get(key) for key in ("median", "worst", "ten_at_once"))
            row = [f"{'' if cell is None else f'{cell:.3f}'}" for cell in cells]
            print(f"{name:24}{row[0]:>10}{row[1]:>10}{row[2]:>15}")
    late = [
        f"{name}: {found[name]['median']:.3f} s, limit {limit} s"
        for name, limit in LIMITS_SECONDS.items()
        if name in found and found[name]["median"] > limit
    ]
    if options.check and late:
        raise SystemExit("; ".join(late))


if __name__ == "__main__":
    main()

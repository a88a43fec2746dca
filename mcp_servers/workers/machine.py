"""Resources of this machine: processors, memory and GPUs."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def cpus() -> int:
    """Return the number of available processors, given CPU affinity and cgroup quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        return count or 1
    if quota == "max":
        return count or 1
    return max(1, min(count or 1, int(int(quota) / int(period))))


def available_mb() -> int:
    """Return the available memory in MiB, as limited by the system or the control group."""
    found = 4096
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                found = int(line.split()[1]) // 1024
    except (OSError, ValueError):
        return found
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        if limit != "max":
            found = min(found, (int(limit) - used) // 2**20)
    except (OSError, ValueError):
        pass
    return max(256, found)


def resident_mb(pid: int) -> float:
    """Return a process's resident memory in MiB, or 0 if it cannot be read."""
    try:
        fields = Path(f"/proc/{pid}/statm").read_text().split()
        return int(fields[1]) * PAGE / 2**20
    except (OSError, ValueError, IndexError):
        return 0.0


def gpus() -> int:
    """List the GPUs that `nvidia-smi` reports, restricted to CUDA_VISIBLE_DEVICES.

    No library is loaded.
    """
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return 0
    try:
        done = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        count = min(count, len([part for part in visible.split(",") if part.strip()]))
    return count

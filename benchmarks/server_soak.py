"""Ten thousand calls to one server: its memory, open files and disk along the way.

    nice -n 19 python benchmarks/server_soak.py --calls 10000

A real MCP server over HTTP with two workers is asked to save small tables, each of which is a file,
while what calls wrote is bounded (`--keep-mb`; here also what is young may go). It keeps no results
by content: that cache has a bound of its own. Each line is what /metrics says, and the disk.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TOKEN = "a-token-of-the-soak-0123456789"
KEEP_MB = 1.0
SERVE = """
import sys
from pathlib import Path
from mcp_servers.roots import Roots
from mcp_servers.servers.options import HttpOptions, Limits
from mcp_servers.servers.prune import Bounds
from mcp_servers.servers.serve import serve_http
from mcp_servers.servers.start import open_server
home, token, megabytes = Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
limits = Limits(outputs=Bounds(megabytes=megabytes, young_s=5.0))
with open_server("oncology", Roots.of([home], home / "out"), workers="2", limits=limits) as server:
    serve_http(server, HttpOptions(port=0, token=token), started=lambda url: print(url, flush=True))
"""
"""As `sage tools serve`, with a shorter time for which new outputs are left alone."""


def on_disk(folder: Path) -> tuple[int, float]:
    """Call folders, and megabytes of all files."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
    return len(list((folder / "out").glob("*/*"))), sum(sizes) / 1e6


async def soak(url: str, home: Path, server: int, calls: int, samples: int) -> None:
    """Call, and print a line now and then."""
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    from benchmarks.measure_soak import resident_mb

    headers = {"Authorization": f"Bearer {TOKEN}"}
    start, failed = time.perf_counter(), 0
    print("calls  seconds  server MiB  all MiB  open files  call folders  MB on disk  failed")
    async with httpx2.AsyncClient(headers=headers, timeout=60) as transport:
        connection = streamable_http_client(url, http_client=transport)
        async with Client(connection, read_timeout_seconds=60) as client:
            for number in range(calls + 1):
                if number % max(1, calls // samples) == 0:
                    told = (await transport.get(url.replace("/mcp", "/metrics"))).text
                    said = dict(re.findall(r"^(process_\w+) (\S+)$", told, re.MULTILINE))
                    folders, megabytes = on_disk(home)
                    print(
                        f"{number:5d}  {time.perf_counter() - start:7.0f}"
                        f"  {float(said['process_resident_memory_bytes']) / 2**20:10.0f}"
                        f"  {resident_mb(server):7.0f}  {said['process_open_fds']:>10}"
                        f"  {folders:12d}  {megabytes:10.1f}  {failed:6d}",
                        flush=True,
                    )
                rows = [{"patient": f"P{at}", "value": float(number + at)} for at in range(20)]
                answer = await client.call_tool("save_table", {"name": f"t{number}", "rows": rows})
                failed += bool(answer.is_error)
                if failed == 1 and answer.is_error:
                    print(answer.content, flush=True)


def main() -> None:
    """Serve and call."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--samples", type=int, default=10)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-c", SERVE, str(home), TOKEN, str(KEEP_MB)]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert server.stdout is not None
        try:
            url = server.stdout.readline().strip()
            asyncio.run(soak(url, home, server.pid, given.calls, given.samples))
        finally:
            server.terminate()
            server.wait(30)


if __name__ == "__main__":
    main()

"""The system calls that analysis code may make: a single list, as a filter for both sandboxes.

`syscalls.tsv` names the calls that Python and its numeric libraries need; all others fail
with EPERM. Some calls are allowed only with certain arguments (`_RULES`). Calls that are
newer than the list, and `clone3`, whose flags cannot be inspected, return ENOSYS, so that
the C library falls back to an older call. Bubblewrap expects the filter as classic BPF,
Docker as a profile in JSON.
"""

from __future__ import annotations

import errno
import functools
import json
import platform
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

Test = tuple[int, int, int]
"""Argument number, mask and value; the test passes if the masked argument equals the value."""

_WHOLE = 0xFFFFFFFF
_NEW_NAMESPACES = 0x7E020000 | 0x00000080
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_STREAM, _DATAGRAM, _PACKETS = 1, 2, 5
_TERMINAL = (
    0x5401,
    0x540F,
    0x5413,
)  # TCGETS, TIOCGPGRP, TIOCGWINSZ: query only, never type into it
_FILES = (0x541B, 0x5421, 0x5450, 0x5451)  # FIONREAD, FIONBIO, FIONCLEX, FIOCLEX

_RULES: dict[str, tuple[tuple[Test, ...], ...]] = {
    "clone": (((0, _NEW_NAMESPACES, 0),),),
    "socket": tuple(
        ((0, _WHOLE, family), (1, 0xF, kind))
        for family in (_AF_UNIX, _AF_INET, _AF_INET6)
        for kind in (_STREAM, _DATAGRAM, _PACKETS)
    ),
    "socketpair": (((0, _WHOLE, _AF_UNIX),),),
    "ioctl": tuple(((1, _WHOLE, request),) for request in (*_TERMINAL, *_FILES)),
}
"""Calls with conditions: all tests of at least one alternative must pass."""


@dataclass(frozen=True)
class Machine:
    """A processor architecture: its kernel audit number, Docker name and call numbers by name."""

    audit: int
    docker: str
    calls: dict[str, int]
    clone3: int = 435


@functools.cache
def machine(name: str) -> Machine | None:
    """Load the system call table for machine `name` (`platform.machine()`), or return None."""
    known = {
        "x86_64": (0xC000003E, "SCMP_ARCH_X86_64"),
        "aarch64": (0xC00000B7, "SCMP_ARCH_AARCH64"),
    }
    if name not in known:
        return None
    lines = resources.files("sandbox").joinpath("syscalls.tsv").read_text("ascii").splitlines()
    column = lines[0].split("\t").index(name)
    rows = [line.split("\t") for line in lines[1:]]
    audit, docker = known[name]
    return Machine(audit, docker, {row[0]: int(row[column]) for row in rows if row[column]})


def profile(name: str | None = None) -> str | None:
    """Build the filter as a seccomp profile for Docker, or return None for an unknown machine."""
    known = machine(name or platform.machine())
    if known is None:
        return None
    allow = "SCMP_ACT_ALLOW"
    plain = sorted(set(known.calls) - set(_RULES))
    entries: list[dict[str, object]] = [{"names": plain, "action": allow, "args": []}]
    for call, alternatives in _RULES.items():
        for tests in alternatives:
            conditions = [
                {"index": at, "value": mask, "valueTwo": value, "op": "SCMP_CMP_MASKED_EQ"}
                for at, mask, value in tests
            ]
            entries.append({"names": [call], "action": allow, "args": conditions})
    refused = {"names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": errno.ENOSYS}
    return json.dumps(
        {
            "defaultAction": "SCMP_ACT_ERRNO",
            "architectures": [known.docker],
            "syscalls": [*entries, refused],
        }
    )


_LOAD, _JEQ, _JGT, _JGE, _AND, _RETURN = 0x20, 0x15, 0x25, 0x35, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_ARCH, _NUMBER, _ARGUMENTS = 4, 0, 16
Step = tuple[int, int, int, int]


def program(name: str | None = None) -> bytes | None:
    """Build the filter as a BPF program for the kernel, or return None for an unknown machine."""
    known = machine(name or platform.machine())
    if known is None:
        return None
    allow, refuse = (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    absent = (_RETURN, 0, 0, _ERRNO | errno.ENOSYS)
    steps: list[Step] = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, known.audit),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JGT, 0, 1, max(known.calls.values())),
        absent,
        (_JEQ, 0, 1, known.clone3),
        absent,
    ]
    for first, last in _ranges(known.calls[call] for call in known.calls if call not in _RULES):
        steps += [(_JGE, 0, 2, first), (_JGT, 1, 0, last), allow]
    for call, alternatives in _RULES.items():
        block: list[Step] = []
        for tests in alternatives:
            for left, (at, mask, value) in zip(range(len(tests), 0, -1), tests, strict=True):
                # What remains of this alternative: its other tests, three steps each, and `allow`.
                skip = 3 * (left - 1) + 1
                block += [(_LOAD, 0, 0, _ARGUMENTS + 8 * at), (_AND, 0, 0, mask)]
                block += [(_JEQ, 0, skip, value)]
            block.append(allow)
        block.append(refuse)
        steps += [(_JEQ, 0, len(block), known.calls[call]), *block]
    steps.append(refuse)
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Group consecutive numbers into ranges, as (first, last)."""
    found: list[tuple[int, int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found

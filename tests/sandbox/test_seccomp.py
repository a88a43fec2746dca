"""The system call filter: the program that the kernel runs and Docker's profile say the same."""

from __future__ import annotations

import errno
import json
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox.seccomp import machine, profile, program

MACHINES = ["x86_64", "aarch64"]
ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50000 | errno.EPERM, 0x50000 | errno.ENOSYS


def run_filter(name: str, number: int, arguments: list[int], audit: int | None = None) -> int:
    """What the program answers to a call, step by step as the kernel's machine goes."""
    text, known = program(name), machine(name)
    assert text is not None and known is not None
    steps = [struct.unpack("=HBBI", text[at : at + 8]) for at in range(0, len(text), 8)]
    data = struct.pack("=IIQ6Q", number, known.audit if audit is None else audit, 0, *arguments)
    held, at = 0, 0
    while True:
        code, if_true, if_false, constant = steps[at]
        at += 1
        if code == 0x20:
            (held,) = struct.unpack_from("=I", data, constant)
        elif code == 0x54:
            held &= constant
        elif code == 0x06:
            return int(constant)
        else:
            holds = {0x15: held == constant, 0x25: held > constant, 0x35: held >= constant}[code]
            at += if_true if holds else if_false


def read_profile(name: str, call: str, arguments: list[int]) -> int:
    """What Docker's profile says to a call, read as libseccomp's manual says."""
    text = profile(name)
    assert text is not None
    held: dict[str, Any] = json.loads(text)
    assert held["defaultAction"] == "SCMP_ACT_ERRNO"
    for entry in held["syscalls"]:
        tests = entry.get("args", [])
        if call in entry["names"] and all(
            arguments[test["index"]] & test["value"] == test["valueTwo"] for test in tests
        ):
            return ALLOW if entry["action"] == "SCMP_ACT_ALLOW" else 0x50000 | entry["errnoRet"]
    return EPERM


@pytest.mark.parametrize("name", MACHINES)
def test_the_filter_is_whole(name: str) -> None:
    """Every jump lands inside the program, and every path ends in a return."""
    text = program(name)
    assert text is not None and len(text) % 8 == 0
    steps = [struct.unpack("=HBBI", text[at : at + 8]) for at in range(0, len(text), 8)]
    assert len(steps) < 4096
    for at, (code, if_true, if_false, _) in enumerate(steps):
        if code & 7 == 5:
            assert at + 1 + max(if_true, if_false) < len(steps)
    assert steps[-1][0] == 6
    assert program("sparc") is None and profile("sparc") is None


SMALL = st.one_of(st.integers(0, 64), st.sampled_from([0x5401, 0x5412, 0x541B, 0x541C, 1 << 32]))
ARGUMENT = st.one_of(SMALL, st.integers(0, 2**64 - 1), st.sampled_from([0x10000000, 0x20000 | 17]))


@pytest.mark.parametrize("name", MACHINES)
@settings(max_examples=60, deadline=None)
@given(choice=st.integers(0, 10_000), arguments=st.lists(ARGUMENT, min_size=6, max_size=6))
def test_both_forms_of_the_filter_agree(name: str, choice: int, arguments: list[int]) -> None:
    known = machine(name)
    assert known is not None
    conditional = ["clone3", "socket", "ioctl", "clone", "socketpair"] * 40
    called = [*sorted(known.calls), *conditional]
    call = called[choice % len(called)]
    number = known.calls.get(call, known.clone3)
    assert run_filter(name, number, arguments) == read_profile(name, call, arguments)


@pytest.mark.parametrize("name", MACHINES)
def test_what_is_not_on_the_list_is_refused(name: str) -> None:
    known = machine(name)
    assert known is not None
    numbers = set(known.calls.values()) | {known.clone3}
    for number in set(range(max(numbers))) - numbers:
        assert run_filter(name, number, [0] * 6) == EPERM
    for number in (max(numbers) + 1, 1000, 0x40000000 + 1, 2**32 - 1, known.clone3):
        assert run_filter(name, number, [0] * 6) == ENOSYS
    assert run_filter(name, 0, [0] * 6, audit=0x40000003) == KILL


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize(
    ("call", "arguments", "answer"),
    [
        ("socket", [2, 1], ALLOW), ("socket", [10, 2 | 0o4000], ALLOW), ("socket", [1, 5], ALLOW),
        ("socket", [40, 1], EPERM), ("socket", [16, 2], EPERM), ("socket", [2, 3], EPERM),
        ("socket", [2**32 + 40, 1], EPERM), ("socket", [17, 3], EPERM), ("socket", [2, 0], EPERM),
        ("clone", [17], ALLOW), ("clone", [0x3D0F00], ALLOW), ("clone", [0x10000000], EPERM),
        ("clone", [0x80], EPERM), ("clone", [0x40000000 | 17], EPERM),
        ("ioctl", [0, 0x5401], ALLOW), ("ioctl", [0, 0x5412], EPERM),
        ("ioctl", [0, 2**32 + 0x5412], EPERM), ("ioctl", [0, 0x541C], EPERM),
        ("socketpair", [1, 1], ALLOW), ("socketpair", [30, 1], EPERM),
        ("read", [0], ALLOW), ("mmap", [0], ALLOW), ("execve", [0], ALLOW),
    ],
)  # fmt: skip
def test_calls_with_conditions(name: str, call: str, arguments: list[int], answer: int) -> None:
    known = machine(name)
    assert known is not None
    whole = [*arguments, 0, 0, 0, 0, 0][:6]
    assert run_filter(name, known.calls[call], whole) == answer
    assert read_profile(name, call, whole) == answer

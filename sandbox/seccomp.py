"""A system call filter for bubblewrap, which brings none: kernel surface that no analysis needs.

Docker has its own default profile. The filter is classic BPF, assembled here; every refused call
returns EPERM (`clone3` returns ENOSYS, so that the C library falls back to `clone`, whose flags can
be looked at). Processes of another architecture are killed.
"""

from __future__ import annotations

import errno
import platform
import struct

# the refused calls and their numbers
_X86 = {
    "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "swapon": 167, "swapoff": 168,
    "reboot": 169, "sethostname": 170, "setdomainname": 171, "init_module": 175,
    "delete_module": 176, "finit_module": 313, "kexec_load": 246, "kexec_file_load": 320,
    "bpf": 321, "perf_event_open": 298, "userfaultfd": 323, "keyctl": 250, "add_key": 248,
    "request_key": 249, "unshare": 272, "setns": 308, "open_by_handle_at": 304,
    "name_to_handle_at": 303, "iopl": 172, "ioperm": 173, "acct": 163, "settimeofday": 164,
    "clock_settime": 227, "adjtimex": 159, "clock_adjtime": 305, "quotactl": 179, "syslog": 103,
    "personality": 135, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432,
    "fspick": 433, "pidfd_getfd": 438, "mount_setattr": 442, "vhangup": 153, "lookup_dcookie": 212,
    "move_pages": 279, "mbind": 237,
}  # fmt: skip
_ARM = {
    "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "mount": 40,
    "umount2": 39, "pivot_root": 41, "chroot": 51, "swapon": 224, "swapoff": 225, "reboot": 142,
    "sethostname": 161, "setdomainname": 162, "init_module": 105, "delete_module": 106,
    "finit_module": 273, "kexec_load": 104, "kexec_file_load": 294, "bpf": 280,
    "perf_event_open": 241, "userfaultfd": 282, "keyctl": 219, "add_key": 217, "request_key": 218,
    "unshare": 97, "setns": 268, "open_by_handle_at": 265, "name_to_handle_at": 264, "acct": 89,
    "settimeofday": 170, "clock_settime": 112, "adjtimex": 171, "clock_adjtime": 266,
    "quotactl": 60, "syslog": 116, "personality": 92, "io_uring_setup": 425,
    "io_uring_enter": 426, "io_uring_register": 427, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433, "pidfd_getfd": 438,
    "mount_setattr": 442, "vhangup": 58, "lookup_dcookie": 18, "move_pages": 239, "mbind": 235,
}  # fmt: skip
# machine: (audit architecture, refused calls, socket, clone, clone3, ioctl)
_MACHINES = {
    "x86_64": (0xC000003E, _X86, 41, 56, 435, 16),
    "aarch64": (0xC00000B7, _ARM, 198, 220, 435, 29),
}
_NEW_NAMESPACES = 0x7E020000 | 0x00000080
_LOAD, _JEQ, _JSET, _JGE, _AND, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_RAW, _TYPE_MASK = 3, 0xF
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_X32_BIT = 0x40000000
_ARCH, _NUMBER, _FIRST, _SECOND = 4, 0, 16, 24


def program(machine: str | None = None) -> bytes | None:
    """The filter as the kernel takes it, or None for a machine that it was not written for."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return None
    architecture, refused, socket, clone, clone3, ioctl = known
    refuse = (_RETURN, 0, 0, _ERRNO | errno.EPERM)
    steps = [
        (_LOAD, 0, 0, _ARCH),
        (_JEQ, 1, 0, architecture),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_JGE, 0, 1, _X32_BIT),
        refuse,
        (_JEQ, 0, 1, clone3),
        (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),
    ]
    for number in sorted(refused.values()):
        steps += [(_JEQ, 0, 1, number), refuse]
    allow = (_RETURN, 0, 0, _ALLOW)
    # Each block is skipped as a whole when it is another call; jumps count the steps to skip.
    steps += [  # clone with a flag that makes a namespace
        (_JEQ, 0, 4, clone),
        (_LOAD, 0, 0, _FIRST),
        (_JSET, 0, 1, _NEW_NAMESPACES),
        refuse,
        allow,
    ]
    steps += [  # socket of another family than unix and internet, or raw
        (_JEQ, 0, 10, socket),
        (_LOAD, 0, 0, _FIRST),
        (_JEQ, 3, 0, _AF_UNIX),
        (_JEQ, 2, 0, _AF_INET),
        (_JEQ, 1, 0, _AF_INET6),
        refuse,
        (_LOAD, 0, 0, _SECOND),
        (_AND, 0, 0, _TYPE_MASK),
        (_JEQ, 0, 1, _SOCK_RAW),
        refuse,
        allow,
    ]
    steps += [  # ioctl that types into a terminal
        (_JEQ, 0, 5, ioctl),
        (_LOAD, 0, 0, _SECOND),
        (_JEQ, 1, 0, _TIOCSTI),
        (_JEQ, 0, 1, _TIOCLINUX),
        refuse,
        allow,
    ]
    steps += [allow]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)

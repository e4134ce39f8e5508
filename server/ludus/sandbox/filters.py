"""The system-call filter of a sandbox: classic BPF, assembled here so that no library is needed.

The filter lists refused calls, not allowed ones. Namespaces, the lack of capabilities and an unused user id already
remove the important rights; the filter closes parts of the kernel that an unprivileged process can reach and that have
a long record of vulnerabilities. Refused calls fail with EPERM, or with ENOSYS if programs have a fallback for that.
The numbers are from the kernel's `syscall_64.tbl` and `asm-generic/unistd.h`.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Any, Final

_CALLS: Final[dict[str, tuple[int, int]]] = {
    # name: (x86-64, arm64); -1 if the architecture has no such call
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "open_tree_attr": (467, 467),
    "unshare": (272, 97), "setns": (308, 268),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "bpf": (321, 280), "userfaultfd": (323, 282), "perf_event_open": (298, 241), "fanotify_init": (300, 262),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "syslog": (103, 116), "acct": (163, 89), "quotactl": (179, 60), "quotactl_fd": (443, 443),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "vhangup": (153, 58), "lookup_dcookie": (212, 18),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "iopl": (172, -1), "ioperm": (173, -1), "modify_ldt": (154, -1), "uselib": (134, -1), "ustat": (136, -1),
    "sysfs": (139, -1), "_sysctl": (156, -1), "nfsservctl": (180, 42), "vserver": (236, -1),
}  # fmt: skip
_ABSENT: Final[dict[str, tuple[int, int]]] = {
    # Its flags are in memory, which a filter cannot read; libraries fall back to clone.
    "clone3": (435, 435),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    # The number of requests is limited for the whole machine, and programs have a fallback.
    "io_setup": (206, 0),
    # These objects would outlive the command that created them.
    "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
}  # fmt: skip
_UNCOUNTED: Final[dict[str, tuple[int, int]]] = {
    # Their memory is in no process's resident set, and without cgroups only resident sets are counted.
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "vmsplice": (278, 75),
}  # fmt: skip
_SHARED_USER: Final[dict[str, tuple[int, int]]] = {
    # The kernel limits these per user, across all sandboxes of that user.
    "inotify_init": (253, -1), "inotify_init1": (294, 26),
}  # fmt: skip
_NETWORK: Final[dict[str, tuple[int, int]]] = {
    # The kernel's buffers for TCP and UDP do not count toward the limit on memory in control groups of version 1 and
    # in containers. `socketpair` stays allowed: asyncio needs it, and its buffers are counted.
    "socket": (41, 198),
}
_TARGET_FIRST: Final[dict[str, tuple[int, int]]] = {
    # The sandbox's first process enforces its limits and has the same user, so commands could starve it.
    "sched_setparam": (142, 118), "sched_setscheduler": (144, 119), "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}  # fmt: skip
_TARGET_SECOND: Final[dict[str, tuple[int, int, int]]] = {
    # name: (x86-64, arm64, the first argument that selects all processes of a user)
    "setpriority": (141, 140, 2),
    "ioprio_set": (251, 30, 3),
}
_FIRST_PROCESS: Final = 1
_FCNTL: Final = (72, 25)
_F_SETSIG: Final = 10
"""It makes the kernel send any signal to any process of the same user, the first process included."""
_MAP_HUGETLB, _MFD_HUGETLB = 0x40000, 0x4
"""Huge pages are shared by the whole machine, and did not count toward the limit on memory before Linux 6.7."""
_MEMFD_CREATE: Final = (319, 279)
_SETSOCKOPT: Final = (54, 208)
_SOL_SOCKET, _SO_SNDBUF, _SO_RCVBUF = 1, 7, 8
_STREAM: Final = 1
_TYPE_MASK: Final = 0xF
_CLONE, _IOCTL, _SOCKET, _SOCKETPAIR, _PRLIMIT = (56, 220), (16, 29), (41, 198), (53, 199), (302, 261)
_MMAP: Final = (9, 222)
_MAP_SHARED, _MAP_ANONYMOUS = 0x01, 0x20

_NAMESPACES: Final = 0x7E020000
"""CLONE_NEW{USER,NS,PID,NET,IPC,UTS,CGROUP}."""
_TERMINAL_CALLS: Final = (0x5412, 0x541C, 0x5423)
"""TIOCSTI types into a terminal, TIOCLINUX reads a console, and TIOCSETD selects a line discipline: drivers of modems
and radios, which the kernel loads on demand."""
_FAMILIES: Final = (1, 2, 10)
"""AF_UNIX, AF_INET, AF_INET6. A network namespace does not isolate all other families, for example AF_VSOCK."""

_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_LOAD, _AND, _JEQ, _JGE, _JSET, _RET = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_NUMBER, _ARCH, _ARGUMENT = 0, 4, 16
_X32_BIT: Final = 0x40000000


def supported() -> bool:
    """Return whether there is a filter for this machine's architecture."""
    return platform.machine() in _MACHINES


def assemble(*, counted: bool, own_user: bool, network: bool) -> bytes:
    """Return the filter as an array of `struct sock_filter`.

    Args:
        counted: a control group counts the sandbox's memory.
        own_user: no other process of this machine has the sandbox's user id.
        network: commands may create sockets, to reach the egress proxy.
    """
    column, arch = _MACHINES[platform.machine()]
    program = [(_LOAD, 0, 0, _ARCH), (_JEQ, 1, 0, arch), (_RET, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if column == 0:
        program += [(_JGE, 0, 1, _X32_BIT), (_RET, 0, 0, _KILL)]
    absent = _ABSENT | ({} if counted else _UNCOUNTED) | ({} if own_user else _SHARED_USER)
    for calls, code in ((_CALLS | ({} if network else _NETWORK), errno.EPERM), (absent, errno.ENOSYS)):
        for numbers in calls.values():
            if numbers[column] >= 0:
                program += [(_JEQ, 0, 1, numbers[column]), (_RET, 0, 0, _ERRNO | code)]
    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    program += _on(_CLONE[column], 0, [(_JSET, 0, 1, _NAMESPACES), refuse])
    program += _on(_IOCTL[column], 1, [*_among(_TERMINAL_CALLS), refuse])
    program += _on(_PRLIMIT[column], 0, [(_JEQ, 1, 0, 0), refuse])
    program += _on(_FCNTL[column], 1, [(_JEQ, 0, 1, _F_SETSIG), refuse])
    for numbers in _TARGET_FIRST.values():
        program += _on(numbers[column], 0, [(_JEQ, 0, 1, _FIRST_PROCESS), refuse])
    for call in _TARGET_SECOND.values():
        second = (_LOAD, 0, 0, _ARGUMENT + 8)
        program += _on(call[column], 0, [(_JEQ, 2, 0, call[2]), second, (_JEQ, 0, 1, _FIRST_PROCESS), refuse])
    program += _on_memory(column, counted=counted)
    program += _on(_MEMFD_CREATE[column], 1, [(_JSET, 0, 1, _MFD_HUGETLB), refuse])
    # Datagrams do not count toward the limit on memory in any version of control groups, and the proxy takes none.
    refusal = (_RET, 0, 0, _ERRNO | errno.EAFNOSUPPORT)
    local = [(_JEQ, 1, 0, _FAMILIES[0]), refusal]
    program += _on(_SOCKETPAIR[column], 0, local)
    stream = [(_LOAD, 0, 0, _ARGUMENT + 8), (_AND, 0, 0, _TYPE_MASK), (_JEQ, 1, 0, _STREAM), refusal]
    internet = [(_JEQ, len(_FAMILIES) - index, 0, family) for index, family in enumerate(_FAMILIES[1:], start=1)]
    # AF_UNIX is allowed whatever the type: jump past the other families, their refusal, and the check of the type.
    program += _on(_SOCKET[column], 0, [(_JEQ, len(internet) + 1 + len(stream), 0, _FAMILIES[0]),
                                        *internet, refusal, *stream])  # fmt: skip
    program.append((_RET, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


def _among(values: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Return tests that continue with the next instruction if the loaded value is one of these, and skip it if not."""
    last_index = len(values) - 1
    return [(_JEQ, last_index - index, int(index == last_index), value) for index, value in enumerate(values)]


def _on_memory(column: int, *, counted: bool) -> list[tuple[int, int, int, int]]:
    refuse = (_RET, 0, 0, _ERRNO | errno.EPERM)
    if counted:
        return _on(_MMAP[column], 3, [(_JSET, 0, 1, _MAP_HUGETLB), refuse])
    # Sockets are counted by the default size of their buffers, so that size must not change.
    buffers = [(_JEQ, 0, 4, _SOL_SOCKET), (_LOAD, 0, 0, _ARGUMENT + 16), (_JEQ, 1, 0, _SO_SNDBUF),
               (_JEQ, 0, 1, _SO_RCVBUF), refuse]  # fmt: skip
    # Shared anonymous memory is an unnamed file: its pages stay when they are in no process's resident set any more.
    shared = [(_JSET, 0, 2, _MAP_ANONYMOUS), (_JSET, 0, 1, _MAP_SHARED), refuse]
    return [*_on(_MMAP[column], 3, [(_JSET, 2, 0, _MAP_HUGETLB), *shared]), *_on(_SETSOCKOPT[column], 1, buffers)]


def profile(*, network: bool, counted: bool = True) -> dict[str, Any]:
    """Return the same rules as a seccomp profile for Docker (https://docs.docker.com/engine/security/seccomp)."""

    def refuse(names: list[str], code: int, *arguments: dict[str, Any]) -> dict[str, Any]:
        return {"names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": code, "args": list(arguments)}

    def argument(index: int, operator: str, value: int, second: int = 0) -> dict[str, Any]:
        return {"index": index, "op": f"SCMP_CMP_{operator}", "value": value, "valueTwo": second}

    def low(index: int, value: int, mask: int = 0xFFFFFFFF) -> dict[str, Any]:
        # The engine's filter compares 64 bits, but these calls read only 32.
        return argument(index, "MASKED_EQ", mask, value)

    flags = [1 << bit for bit in range(32) if _NAMESPACES >> bit & 1]
    refused_families = [family for family in range(max(_FAMILIES)) if family not in _FAMILIES]
    datagrams = [kind for kind in range(_TYPE_MASK + 1) if kind != _STREAM]
    unsupported = errno.EAFNOSUPPORT
    sockets = [
        *(refuse(["socket"], unsupported, argument(0, "EQ", family)) for family in refused_families),
        refuse(["socket"], unsupported, argument(0, "GT", max(_FAMILIES))),
        *(refuse(["socket"], unsupported, low(0, family), low(1, kind, _TYPE_MASK))
          for family in _FAMILIES[1:] for kind in datagrams),
    ]  # fmt: skip
    uncounted = [
        refuse(list(_UNCOUNTED), errno.ENOSYS),
        refuse(["mmap"], errno.EPERM, low(3, _MAP_SHARED | _MAP_ANONYMOUS, _MAP_SHARED | _MAP_ANONYMOUS)),
        *(refuse(["setsockopt"], errno.EPERM, low(1, _SOL_SOCKET), low(2, size)) for size in (_SO_SNDBUF, _SO_RCVBUF)),
    ]
    return {
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": [{"x86_64": "SCMP_ARCH_X86_64", "aarch64": "SCMP_ARCH_AARCH64"}[platform.machine()]],
        "syscalls": [
            refuse(list(_CALLS), errno.EPERM),
            refuse(list(_ABSENT), errno.ENOSYS),
            *(refuse(["clone"], errno.EPERM, argument(0, "MASKED_EQ", flag, flag)) for flag in flags),
            *(refuse(["ioctl"], errno.EPERM, low(1, code)) for code in _TERMINAL_CALLS),
            refuse(["prlimit64"], errno.EPERM, argument(0, "NE", 0)),
            refuse(["fcntl"], errno.EPERM, low(1, _F_SETSIG)),
            refuse(list(_TARGET_FIRST), errno.EPERM, low(0, _FIRST_PROCESS)),
            refuse(list(_TARGET_SECOND), errno.EPERM, low(1, _FIRST_PROCESS)),
            *(refuse([name], errno.EPERM, low(0, call[2])) for name, call in _TARGET_SECOND.items()),
            refuse(["mmap"], errno.EPERM, low(3, _MAP_HUGETLB, _MAP_HUGETLB)),
            refuse(["memfd_create"], errno.EPERM, low(1, _MFD_HUGETLB, _MFD_HUGETLB)),
            refuse(["socketpair"], unsupported, argument(0, "NE", _FAMILIES[0])),
            *(sockets if network else [refuse(list(_NETWORK), errno.EPERM)]),
            *([] if counted else uncounted),
        ],
    }


def _on(number: int, argument: int, body: list[tuple[int, int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Return `body`, applied to one argument of one call; it sees the low 32 bits, all that these calls read."""
    block = [(_LOAD, 0, 0, _ARGUMENT + 8 * argument), *body]
    return [(_JEQ, 0, len(block) + 1, number), *block, (_RET, 0, 0, _ALLOW)]

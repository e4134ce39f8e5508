"""System calls by which a sandbox confines itself, after its namespaces exist and before anything untrusted runs."""

from __future__ import annotations

import ctypes
import os
import struct

from ludus.sandbox.inside.messages import send_descriptor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SIGINT, SIGKILL, SIGPIPE, SIGCONT, SIGSTOP, SIGXCPU, SIGXFSZ = 2, 9, 13, 18, 19, 24, 25
"""The numbers on Linux for x86-64 and arm64."""

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_CAPBSET_DROP = 1, 4, 22, 24
_PR_SET_CHILD_SUBREAPER, _PR_SET_NO_NEW_PRIVS = 36, 38
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MNT_DETACH = 2, 4, 8, 4096, 2
_LIBC = ctypes.CDLL(None, use_errno=True)


def _check(result: int, action: str) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{action}: {os.strerror(code)}")


def _mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    kind_bytes = None if kind is None else kind.encode()
    _check(_LIBC.mount(source.encode(), target.encode(), kind_bytes, flags, data.encode()), f"mounting {target}")


def _prctl(option: int, *values: Any) -> None:
    _check(_LIBC.prctl(option, *values, *([0] * (4 - len(values)))), f"prctl {option}")


def make_disk(config: dict[str, Any]) -> None:
    """Mount one file system in memory, limited in size, as the work directory and as /tmp."""
    disk, user = config["disk"], config["user"]
    stage = "/.ludus/stage"
    options = f"size={disk['bytes']},nr_inodes={disk['inodes']},mode=0755"
    _mount("tmpfs", stage, "tmpfs", _MS_NOSUID | _MS_NODEV, options)
    for target in (config["home"], "/tmp"):
        inner = stage + "/" + target.strip("/")
        os.mkdir(inner, 0o700)
        if os.geteuid() != user:
            os.chown(inner, user, user)
        _mount(inner, target, None, _MS_BIND)
    if config["terminals"]:
        # Terminals of its own, for programs such as tmux. The number is limited for the whole machine.
        options = f"newinstance,ptmxmode=0666,mode=0620,max={config['terminals']}"
        _mount("devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, options)
    if config["tcp_buffer"]:
        _bound_tcp(stage + "/proc", config["tcp_buffer"])
    _check(_LIBC.umount2(stage.encode(), _MNT_DETACH), "unmounting")
    if not config["counted"]:
        # Shared mappings of /dev/zero give memory that is in no process's resident set. /dev/full reads the same and
        # cannot be mapped.
        _mount("/dev/full", "/dev/zero", None, _MS_BIND)


def _bound_tcp(directory: str, size: int) -> None:
    """Limit each buffer of TCP in this network namespace, where no control group counts their memory."""
    os.mkdir(directory, 0o700)
    try:
        _mount("proc", directory, "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    except OSError:
        if os.geteuid() == 0:
            raise
        return  # without root, the kernel allows no second view of /proc; the number of open files is the only bound
    for name in ("tcp_rmem", "tcp_wmem"):
        with open(f"{directory}/sys/net/ipv4/{name}", "w") as file:
            file.write(f"4096 {size} {size}")
    _check(_LIBC.umount2(directory.encode(), _MNT_DETACH), "unmounting")


def drop_privileges(config: dict[str, Any]) -> None:
    """Become the sandbox's user, drop all capabilities, stop being inspectable, and install the filter."""
    for capability in range(64):
        if _LIBC.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            break
    user = config["user"]
    if os.geteuid() != user:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    header = struct.pack("=Ii", 0x20080522, 0)
    _check(_LIBC.capset(header, bytes(24)), "dropping capabilities")
    close_up(config)
    # Changing the user cleared the death signal that bubblewrap had set.
    _prctl(_PR_SET_PDEATHSIG, SIGKILL)


def close_up(config: dict[str, Any]) -> None:
    """Gain no more rights, stop being inspectable, and install the filter."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    program = bytes.fromhex(config["filter"])
    if program:
        install_filter(program)


def install_filter(program: bytes) -> None:
    """Install a system-call filter, in classic BPF, for this process and its descendants."""
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("@HP", len(program) // 8, ctypes.addressof(buffer))
    _prctl(_PR_SET_SECCOMP, 2, ctypes.c_char_p(described))


def open_listener(passing: int, address: tuple[str, int]) -> None:
    """Create the egress proxy's listening socket in the sandbox's own network, and send it to the server."""
    import _socket as sockets  # importing `socket` would delay the start of every sandbox

    listener = sockets.socket(sockets.AF_INET, sockets.SOCK_STREAM)
    listener.bind(address)
    listener.listen(128)
    send_descriptor(passing, listener.fileno())
    listener.close()


def set_child_subreaper() -> None:
    """Make descendants of this process that lose their parent its children."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(parent: int) -> None:
    """Make the kernel end this process when the process that started it ends, and end it now if that has happened.

    Args:
        parent: the id of the process that started it, which may have ended before the kernel was asked.
    """
    _prctl(_PR_SET_PDEATHSIG, SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def default_signals(*numbers: int) -> None:
    """Restore the default handling of these signals, which Python changes at startup."""
    for number in numbers:
        _LIBC.signal(number, None)


def be_the_first_to_go() -> None:
    """Make the kernel end this process first when memory is short, before the program inside and the server."""
    _prctl(_PR_SET_DUMPABLE, 1)  # otherwise its files in /proc belong to root
    with open("/proc/self/oom_score_adj", "wb") as file:
        file.write(b"1000")

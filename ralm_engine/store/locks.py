"""One writer per run directory.

On a local disk the operating system holds the lock (`flock`), so that it dies with its process: a
killed writer never blocks the next one. What the file says (host, process, start) is for messages,
and tells workers of a dead driver that the run has a new owner.

Where there is no `flock` (object stores, some network disks) the file itself is the lock, as well
as that can be done: it is stale when its process on this host is gone; a lock of another host has
to be deleted by hand, because nothing here can see whether that process lives. Two processes that
start in the same instant on an object store can both get it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import secrets
import socket
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self

from ralm_engine.errors import InputError

if TYPE_CHECKING:
    from ralm_engine.store.location import Location

LOCK_NAME = ".lock"
_NO_FLOCK = frozenset({errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Who holds a lock.

    Attributes:
        host: name of the machine.
        pid: process number there.
        process_start: kernel ticks at which the process started; a reused number differs.
        since: UTC time in ISO form.
        token: random, one per lock ever taken.
    """

    host: str
    pid: int
    process_start: int
    since: str
    token: str

    @classmethod
    def myself(cls) -> Owner:
        """An owner record of this process with a new token."""
        return cls(
            host=socket.gethostname(),
            pid=os.getpid(),
            process_start=_process_start(os.getpid()) or 0,
            since=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            token=secrets.token_hex(8),
        )

    @classmethod
    def parse(cls, data: bytes) -> Owner | None:
        """Reads an owner record; None when the file is empty, torn or of another make."""
        try:
            return cls(**json.loads(data))
        except (ValueError, TypeError):
            return None

    def to_json(self) -> bytes:
        """The record as one line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    def may_live(self) -> bool:
        """False only when the process was on this host and is gone."""
        if self.host != socket.gethostname():
            return True
        return _process_start(self.pid) == self.process_start

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host} since {self.since}"


@dataclass(slots=True)
class RunLock:
    """A held lock; `release` or the end of the process frees it."""

    location: Location
    owner: Owner
    _descriptor: int | None = field(default=None, repr=False)

    @classmethod
    def acquire(cls, directory: Location) -> RunLock:
        """Takes the lock of an existing directory.

        Raises:
            InputError: another living process holds it, named with host, process and start.
            OSError: the lock file cannot be written.
        """
        location = directory / LOCK_NAME
        owner = Owner.myself()
        if location.local is not None:
            descriptor = _try_flock(location.local, directory.label)
            if descriptor is not None:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner.to_json(), 0)
                # Workers on other nodes of a network disk read the owner before they commit.
                os.fsync(descriptor)
                return cls(location, owner, descriptor)
        _claim_by_content(location, owner, directory.label)
        return cls(location, owner)

    def release(self) -> None:
        """Frees the lock; a second call does nothing."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None
        elif current_owner(self.location) == self.owner:
            self.location.delete_file()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def current_owner(location: Location) -> Owner | None:
    """Who the lock file names; None without one."""
    try:
        return Owner.parse(location.read().to_pybytes())
    except FileNotFoundError:
        return None


def _try_flock(path: Path, label: str) -> int | None:
    """A descriptor that holds the lock; None where the disk has no flock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = Owner.parse(os.pread(descriptor, 4096, 0))
        os.close(descriptor)
        raise _held(label, owner) from error
    except OSError as error:
        os.close(descriptor)
        if error.errno in _NO_FLOCK:
            return None
        raise
    return descriptor


def _claim_by_content(location: Location, owner: Owner, label: str) -> None:
    holder = current_owner(location)
    if holder is not None and holder.may_live():
        raise _held(label, holder, by_hand=location.label)
    local = location.local
    if local is None:
        location.write(owner.to_json())
        return
    with contextlib.suppress(FileNotFoundError):
        local.unlink()
    try:
        descriptor = os.open(local, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    except FileExistsError as error:
        raise _held(label, current_owner(location)) from error
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(owner.to_json())


def _held(label: str, owner: Owner | None, *, by_hand: str = "") -> InputError:
    holder = str(owner) if owner is not None else "another process"
    delete = f'; if that process is gone, delete "{by_hand}"' if by_hand else ""
    return InputError(
        f"{label} is being written by {holder}",
        hint=f"wait for it, or give another [run] out{delete}",
    )


def _process_start(pid: int) -> int | None:
    """Start of a living process in kernel ticks since boot; None when it is gone.

    Systems without /proc give 0 for every living process.
    """
    try:
        # The command in the second field may hold spaces and brackets; fields 3.. follow the last.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return None
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except PermissionError:
            return 0
        return 0
    return int(fields[19])

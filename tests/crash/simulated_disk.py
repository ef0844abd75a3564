"""A disk in memory that remembers every call, can be rebuilt as a crash at any of them would leave it, and fails on demand.

Deterministic: the same calls and the same seed give the same disk. What it assumes of a real one is what
`docs/journal-format.md` lists: sectors of 512 bytes are written whole or not at all, in any order; nothing that was
synced is lost; a name is durable once its directory was synced.
"""

import errno
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.store.journal.filesystem import File, FileSystem

SECTOR_BYTES = 512


class Inode:
    """The content of a file, whatever it is called."""

    __slots__ = ("data",)

    def __init__(self, data: bytes = b"") -> None:
        self.data = bytearray(data)


@dataclass(frozen=True)
class Call:
    """One call that changed something, or promised that a change is durable."""

    name: str  # create, write, resize, sync, rename, remove, sync_directory
    path: str = ""
    inode: Inode | None = None
    offset: int = 0
    data: bytes = b""
    size: int = 0
    target: str = ""


@dataclass
class Fault:
    """What happens at a call: an error number, or a short write; once, or from then on."""

    at: int
    error: int  # 0: a short write
    permanent: bool = False

    def strikes(self, number: int) -> bool:
        """Whether the call of this number fails."""
        return number >= self.at if self.permanent else number == self.at


class SimulatedDisk(FileSystem):
    """A file system in memory."""

    def __init__(self, files: dict[str, bytes] | None = None, *, capacity: int | None = None) -> None:
        self.files = {path: Inode(data) for path, data in (files or {}).items()}
        self.initial = [(path, inode, bytes(inode.data)) for path, inode in self.files.items()]
        self.capacity = capacity
        self.calls: list[Call] = []
        self.fault: Fault | None = None
        #: Calls that could fail, counted from 1.
        self.count = 0
        self.syncs = 0
        self._locked: set[str] = set()

    def contents(self) -> dict[str, bytes]:
        """Return all files as they would be read now: what a killed process leaves behind."""
        return {path: bytes(inode.data) for path, inode in self.files.items()}

    def used(self) -> int:
        """Return the bytes in use; a file that was removed does not count, even when it is open."""
        return sum(len(inode.data) for inode in self.files.values())

    def check_room(self, growth: int) -> None:
        """Raise ENOSPC when the disk cannot grow by so many bytes."""
        if growth > 0 and self.capacity is not None and self.used() + growth > self.capacity:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def strike(self, *, is_write: bool = False) -> bool:
        """Count a call and let it fail if it is to; True when a write is to be short."""
        self.count += 1
        if self.fault is None or not self.fault.strikes(self.count):
            return False
        if self.fault.error in {0, errno.EINTR} and not is_write:
            return False  # Only writes can be short, and only they are not tried again by Python itself (PEP 475).
        if self.fault.error == 0:
            return True
        raise OSError(self.fault.error, os.strerror(self.fault.error))

    def make_directory(self, path: str) -> None:
        pass  # Directories are there and durable as soon as they are asked for.

    def names(self, path: str) -> list[str]:
        prefix = path + "/"
        return sorted(
            name[len(prefix) :] for name in self.files if name.startswith(prefix) and "/" not in name[len(prefix) :]
        )

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        if create:
            self.strike()
            inode = self.files[path] = Inode()
            self.calls.append(Call("create", path, inode))
        if path not in self.files:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return SimulatedFile(self, self.files[path])

    def rename(self, old: str, new: str) -> None:
        self.strike()
        self.files[new] = self.files.pop(old)
        self.calls.append(Call("rename", old, target=new))

    def remove(self, path: str) -> None:
        self.strike()
        del self.files[path]
        self.calls.append(Call("remove", path))

    def sync_directory(self, path: str) -> None:
        self.strike()
        self.calls.append(Call("sync_directory", path))

    def lock(self, path: str) -> File:
        if path in self._locked:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        if path not in self.files:
            self.files[path] = Inode()
            self.calls.append(Call("create", path, self.files[path]))
        self._locked.add(path)
        return SimulatedFile(self, self.files[path], closed=lambda: self._locked.discard(path))


class SimulatedFile(File):
    """An open file of the simulated disk."""

    def __init__(self, disk: SimulatedDisk, inode: Inode, closed: Callable[[], None] | None = None) -> None:
        self._disk = disk
        self._inode = inode
        self._closed = closed

    def read(self, count: int, offset: int) -> bytes:
        return bytes(self._inode.data[offset : offset + count])

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        if self._disk.strike(is_write=True):
            data = data[: len(data) // 2 or 1]
        old = self._inode.data
        self._disk.check_room(offset + len(data) - len(old))
        if len(old) < offset:
            old.extend(bytes(offset - len(old)))
        old[offset : offset + len(data)] = data
        self._disk.calls.append(Call("write", inode=self._inode, offset=offset, data=bytes(data)))
        return len(data)

    def sync(self) -> None:
        self._disk.strike()
        self._disk.syncs += 1
        self._disk.calls.append(Call("sync", inode=self._inode))

    def allocate(self, size: int) -> None:
        self._disk.strike()
        self._disk.check_room(size - len(self._inode.data))
        self._inode.data.extend(bytes(size - len(self._inode.data)))
        self._disk.calls.append(Call("resize", inode=self._inode, size=size))

    def truncate(self, size: int) -> None:
        self._disk.strike()
        resize(self._inode.data, size)
        self._disk.calls.append(Call("resize", inode=self._inode, size=size))

    def size(self) -> int:
        return len(self._inode.data)

    def expect(self, offset: int, count: int) -> None:
        pass

    def close(self) -> None:
        if self._closed is not None:
            self._closed()


def resize(data: bytearray, size: int) -> None:
    """Cut, or lengthen with zeros."""
    del data[size:]
    data.extend(bytes(size - len(data)))


@dataclass
class Content:
    """What a disk holds of a file: what was synced, and what was asked for since."""

    synced: bytearray = field(default_factory=bytearray)
    pending: list[Call] = field(default_factory=list)

    def settle(self) -> None:
        """Make everything durable."""
        for call in self.pending:
            apply(self.synced, call)
        self.pending.clear()

    def torn(self, choice: random.Random) -> bytes:
        """Return the content with a random choice of the sectors that were not synced."""
        data = bytearray(self.synced)
        for call in self.pending:
            if call.name == "resize":
                if choice.random() < 0.5:
                    resize(data, call.size)
                continue
            end = call.offset + len(call.data)
            at = call.offset
            while at < end:
                border = min(end, (at // SECTOR_BYTES + 1) * SECTOR_BYTES)
                if choice.random() < 0.5:
                    part = call.data[at - call.offset : border - call.offset]
                    apply(data, Call("write", offset=at, data=part))
                at = border
        return bytes(data)


def apply(data: bytearray, call: Call) -> None:
    """Do what a write or resize asks for."""
    if call.name == "resize":
        resize(data, call.size)
        return
    if len(data) < call.offset:
        data.extend(bytes(call.offset - len(data)))
    data[call.offset : call.offset + len(call.data)] = call.data


class Crashes:
    """Follows the calls of a disk one by one, and shows what a crash after each would leave."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.calls = disk.calls
        self.at = 0
        self._content: dict[Inode, Content] = {}
        self._names: dict[str, Inode] = {}
        for path, inode, data in disk.initial:
            self._content[inode] = Content(bytearray(data))
            self._names[path] = inode
        self._synced_names = dict(self._names)
        self._pending: dict[str, list[Call]] = {}

    def step(self) -> Call:
        """Let the next call happen."""
        call = self.calls[self.at]
        self.at += 1
        if call.name in {"write", "resize"}:
            self._of(call).pending.append(call)
        elif call.name == "sync":
            self._of(call).settle()
        elif call.name == "sync_directory":
            for pending in self._pending.pop(call.path, []):
                change_names(self._synced_names, pending)
        else:
            change_names(self._names, call)
            if call.inode is not None:
                self._content.setdefault(call.inode, Content())
            self._pending.setdefault(call.path.rpartition("/")[0], []).append(call)
        return call

    def _of(self, call: Call) -> Content:
        assert call.inode is not None
        return self._content.setdefault(call.inode, Content())

    def synced_only(self) -> dict[str, bytes]:
        """Return (a): nothing that was not synced; names as they were last."""
        return {path: bytes(self._content[inode].synced) for path, inode in self._names.items()}

    def torn(self, seed: int) -> dict[str, bytes]:
        """Return (b): a random choice of the unsynced sectors, and of the unsynced names."""
        choice = random.Random(f"{seed}-{self.at}")
        names = dict(self._synced_names)
        for pending in self._pending.values():
            for call in pending:
                if choice.random() < 0.5:
                    change_names(names, call)
        return {path: self._content[inode].torn(choice) for path, inode in sorted(names.items())}

    def names_lost(self) -> dict[str, bytes]:
        """Return (c): unsynced names are lost, unsynced data too."""
        return {path: bytes(self._content[inode].synced) for path, inode in self._synced_names.items()}


def change_names(names: dict[str, Inode], call: Call) -> None:
    """Do what a create, rename or remove asks for."""
    if call.name == "create":
        assert call.inode is not None
        names[call.path] = call.inode
    elif call.name == "rename":
        if call.path in names:
            names[call.target] = names.pop(call.path)
    else:
        names.pop(call.path, None)

"""The file-system port of the journal, and the real file system behind it; neither knows what is in the files."""

import errno
import fcntl
import os
import stat
from abc import ABC, abstractmethod

#: Asked for one file at a time; smaller slices only cost calls.
_ZEROS = bytes(1 << 20)


class Readable(ABC):
    """What can be read from."""

    @abstractmethod
    def read(self, count: int, offset: int) -> bytes:
        """Return up to `count` bytes from `offset`; fewer only at the end of the file."""


class File(Readable):
    """An open file."""

    @abstractmethod
    def write(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes were taken; may be fewer than given."""

    @abstractmethod
    def sync(self) -> None:
        """Make what was written durable (not the file's name: that is its directory's)."""

    @abstractmethod
    def allocate(self, size: int) -> None:
        """Make the file `size` bytes long, new bytes zero, with its space reserved; ENOSPC when there is none."""

    @abstractmethod
    def truncate(self, size: int) -> None:
        """Cut the file to `size` bytes."""

    @abstractmethod
    def size(self) -> int:
        """Return the length of the file."""

    @abstractmethod
    def expect(self, offset: int, count: int) -> None:
        """Take the hint that this will be read soon."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the file; never fails."""


class FileSystem(ABC):
    """What the journal asks of a file system. Every failure is an `OSError`."""

    @abstractmethod
    def make_directory(self, path: str) -> None:
        """Make a directory and its parents durably; one that exists is no error."""

    @abstractmethod
    def names(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""

    @abstractmethod
    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open a file for reading and writing; `create` makes it, or empties the one there."""

    @abstractmethod
    def rename(self, old: str, new: str) -> None:
        """Give a file another name, in the place of one that may have it."""

    @abstractmethod
    def remove(self, path: str) -> None:
        """Remove a file."""

    @abstractmethod
    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable."""

    @abstractmethod
    def lock(self, path: str) -> File:
        """Take the lock file for this process until it is closed; BlockingIOError when another has it."""


def write_all(file: File, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data`, going on where a short or interrupted write stopped."""
    written = _write(file, data, offset)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(rest):
        count = _write(file, rest[written:], offset + written)
        written += count


def _write(file: File, data: bytes | bytearray | memoryview, offset: int) -> int:
    while True:
        try:
            count = file.write(data, offset)
        except InterruptedError:
            continue  # Nothing was taken.
        if count <= 0 and len(data):
            raise OSError(errno.EIO, "a write took no bytes")
        return count


def is_full(error: OSError) -> bool:
    """Whether an error says that there is no room, rather than that something is broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


class RealFile(File):
    """A file of the operating system."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, count: int, offset: int) -> bytes:
        data = os.pread(self._descriptor, count, offset)
        if len(data) == count or not data:
            return data
        parts = [data]
        got = len(data)
        while data and got < count:
            data = os.pread(self._descriptor, count - got, offset + got)
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def write(self, data: bytes | bytearray | memoryview, offset: int) -> int:
        return os.pwrite(self._descriptor, data, offset)

    def sync(self) -> None:
        _sync_data(self._descriptor)

    def allocate(self, size: int) -> None:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(self._descriptor, 0, size)
            return
        for offset in range(self.size(), size, len(_ZEROS)):
            write_all(self, _ZEROS[: size - offset], offset)

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def expect(self, offset: int, count: int) -> None:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._descriptor, offset, count, os.POSIX_FADV_WILLNEED)

    def close(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            try:
                os.close(descriptor)
            except OSError:
                pass  # What had to be durable was synced before.


def _sync_data(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS: fsync there leaves data in the drive's cache.
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(descriptor)


class RealFileSystem(FileSystem):
    """The file system of the operating system."""

    def make_directory(self, path: str) -> None:
        if stat_is_directory(path):
            return
        parent = os.path.dirname(os.path.abspath(path))
        self.make_directory(parent)
        try:
            os.mkdir(path, 0o750)
        except FileExistsError:
            if not stat_is_directory(path):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path) from None
        self.sync_directory(parent)

    def names(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        flags = os.O_RDONLY if read_only else os.O_RDWR
        if create:
            flags |= os.O_CREAT | os.O_TRUNC
        return RealFile(os.open(path, flags | os.O_CLOEXEC, 0o640))

    def rename(self, old: str, new: str) -> None:
        os.rename(old, new)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def sync_directory(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> File:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealFile(descriptor)


def stat_is_directory(path: str) -> bool:
    """Whether a directory is there."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except FileNotFoundError:
        return False

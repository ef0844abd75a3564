"""What the journal says when something is wrong, with the path and what to do; and the fail-stop after the first failure."""

from penstock.model.errors import StoreDamaged, StoreFailed, StoreFull, StoreInUse, StoreTooNew, StoreUnreadable
from penstock.store.journal.format import VERSION, NewerVersion


class Health:
    """Whether promises can still be given. The first failed write or sync ends that for ever: nothing is tried again."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self.failed: StoreFailed | None = None

    def check(self) -> None:
        """Raise the failure if there was one."""
        if self.failed is not None:
            raise self.failed

    def fail(self, what: str, error: OSError) -> StoreFailed:
        """Note a failure and return what is to be raised: always the first one."""
        if self.failed is None:
            self.failed = StoreFailed(
                f"{what} in {self._directory} failed: {error}. Nothing more is written; look at the disk, then start again.",
                key="journal",
            )
        return self.failed


def closed(directory: str) -> StoreFailed:
    """Return the error that the journal is not open."""
    return StoreFailed(f"the journal in {directory} is not open", key="journal")


def in_use(directory: str, owner: str) -> StoreInUse:
    """Return the error that another broker has the directory."""
    by = f"the process {owner}" if owner else "another process"
    return StoreInUse(
        f"{directory} is in use by {by}. Stop that broker, or give this one another --data.", key="journal"
    )


def unreadable(directory: str, error: OSError) -> StoreUnreadable:
    """Return the error that the directory, or something in it, cannot be opened."""
    return StoreUnreadable(
        f"{error.filename or directory} cannot be opened: {error.strerror or error}. "
        "Check that it is a directory that this user may read and write.",
        key="journal",
    )


def full(directory: str) -> StoreFull:
    """Return the error that there is no room on the disk."""
    return StoreFull(f"there is no room on the disk of {directory}. Free some, or let consumers drain it.", key="disk")


def damaged(path: str, offset: int, why: str) -> StoreDamaged:
    """Return the error that names a damaged file and the place in it."""
    return StoreDamaged(
        f"{path} is damaged at offset {offset}: {why}. Nothing was changed. "
        "Restore a backup, or start with --salvage to keep what is readable.",
        key="journal",
        file=path,
        offset=offset,
    )


def missing(directory: str, sequence: int) -> StoreDamaged:
    """Return the error that a message is needed whose segment is gone."""
    return damaged(directory, 0, f"message {sequence} is needed, but the segment that held it is missing")


def too_new(path: str, newer: NewerVersion) -> StoreTooNew:
    """Return the error that names a file of a newer format."""
    return StoreTooNew(
        f"{path} was written in format {newer.found}; this Penstock knows formats up to {VERSION}. Use a newer Penstock.",
        key="journal",
        found=newer.found,
        known=VERSION,
    )

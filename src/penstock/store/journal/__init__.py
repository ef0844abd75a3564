"""The journal: a store of files in a directory, with nothing to install. `docs/journal-format.md` describes the files."""

from penstock.store.journal.journal import Journal

__all__ = ["Journal"]

"""The files of a lake on any Hadoop file system: a local directory, HDFS, an object store, through Spark's own drivers."""

import os
import re
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from penstock.model.errors import BadRequest, Unavailable

#: A file in the text that Hadoop makes of a listing.
_FILE = re.compile(r"path=(.*?); isDirectory=false; length=(\d+);")

#: What makes Spark look for files whose names match, instead of taking a name as it is.
_PATTERN = re.compile(r"[*?\[\]{}\\]")


class Files:
    """Files under one directory, named by their paths below it."""

    def __init__(self, spark: SparkSession, directory: str) -> None:
        if _PATTERN.search(directory):
            raise BadRequest(
                f"the lake {directory} has one of * ? [ ] {{ }} \\ in its name, which Spark takes for a pattern",
                key="lake",
            )
        gateway: Any = spark
        self._jvm = gateway._jvm  # noqa: SLF001  # Spark has no other way to Hadoop's file systems
        configuration = gateway._jsparkSession.sessionState().newHadoopConf()  # noqa: SLF001  # the same
        place = self._jvm.org.apache.hadoop.fs.Path(directory)
        try:
            self._system = place.getFileSystem(configuration)
        except Py4JJavaError as error:
            why = error.java_exception.getMessage()
            raise BadRequest(f"the lake {directory} is on a file system that Spark cannot open: {why}") from None
        self.root = str(self._system.makeQualified(place).toString())

    def url(self, path: str) -> str:
        """Return the whole name of a file or directory, as Spark reads it."""
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        """Tell whether there is such a file or directory."""
        return bool(self._system.exists(self._path(path)))

    def names(self, path: str) -> list[str]:
        """Return the names of what lies in a directory; there need not be one."""
        if not self.exists(path):
            return []
        return sorted(status.getPath().getName() for status in self._system.listStatus(self._path(path)))

    def sizes(self, path: str) -> dict[str, int]:
        """Return the bytes of each file below a directory, by its path; hidden ones are left out."""
        if not self.exists(path):
            return {}
        found = self._system.listFiles(self._path(path), True)  # recursively
        # All of them come over in one text: to ask Java for one after the other takes a call each.
        text = self._jvm.org.apache.hadoop.util.functional.RemoteIterators.toList(found).toString()
        sizes = {path.removeprefix(f"{self.root}/"): int(size) for path, size in _FILE.findall(text)}
        return {path: size for path, size in sizes.items() if not path.rpartition("/")[2].startswith(("_", "."))}

    def age_seconds(self, path: str) -> float:
        """Return for how long something has not been changed, by the clock of this machine."""
        changed = self._system.getFileStatus(self._path(path)).getModificationTime()
        return float(self._jvm.java.lang.System.currentTimeMillis() - changed) / 1e3

    def read(self, path: str) -> bytes:
        """Return the content of a small file."""
        stream = self._system.open(self._path(path))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def create(self, path: str, content: bytes) -> bool:
        """Write a small file that must not be there yet; returns False if it is."""
        if self._system.getScheme() == "file":
            return _created(Path(self._path(path).toUri().getPath()), content)
        try:
            stream = self._system.create(self._path(path), False)  # do not overwrite
        except Py4JJavaError as error:
            if "FileAlreadyExists" in str(error.java_exception.getClass().getName()):
                return False
            raise
        try:
            stream.write(content)
        finally:
            stream.close()
        return True

    def move(self, source: str, target: str) -> None:
        """Move a file to where nothing is yet; what was moved before, or is by somebody else just now, is passed over."""
        if not self.exists(source):
            return
        where = self._path(target)
        self._system.mkdirs(where.getParent())
        try:
            is_moved = self._system.rename(self._path(source), where)
        except Py4JJavaError:
            is_moved = False
        if not is_moved and not self.exists(target):
            raise Unavailable(f"{self.url(source)} cannot be moved to {target}", key="lake")

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it; it need not be there."""
        self._system.delete(self._path(path), True)  # with all that is in it

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(self.url(path) if path else self.root)


def _created(path: Path, content: bytes) -> bool:
    """Do so on a local disk, where Hadoop looks first and writes then, so that two at once would both have written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with path.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        return False
    return True

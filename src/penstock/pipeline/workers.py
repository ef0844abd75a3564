"""How the workers of a cluster come by this package: it goes along with the job, in archives that Spark unpacks.

The directory into which Spark unpacks them is on the path of each Python that it starts, on the driver's machine too. So an
archive that is named like a package is that package there.
"""

from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZIP_DEFLATED, ZipFile

from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

#: What a worker imports that is rarely installed; numpy and pyarrow are large, and have to be there.
PACKAGES = ("penstock", "crc32c", "msgspec")
#: Where Spark looks for packages while it plans a stream, though it unpacks nothing there (4.2, 4.3).
_PLACE_OF_STREAMS = "streaming_job"
#: Whoever has Spark unpack something has chosen what workers get.
_CHOSEN = ("spark.archives", "spark.yarn.dist.archives")


def send_along(spark: SparkSession) -> None:
    """Have Spark bring us to the workers on other machines, unless the job has archives of its own."""
    if is_remote():
        return
    context = spark.sparkContext
    if str(context.master).startswith("local") or any(context.getConf().contains(name) for name in _CHOSEN):
        return
    root = Path(SparkFiles.getRootDirectory())
    if (root / _PLACE_OF_STREAMS).exists():
        return
    for directory in (place for package in PACKAGES for place in directories(package)):
        archive = root / f"{directory.name}.zip"
        pack(directory, archive)
        context.addArchive(f"{archive}#{directory.name}")
    (root / _PLACE_OF_STREAMS).symlink_to(root)


def directories(package: str) -> list[Path]:
    """Return where a package is, and where it is told of which version it is."""
    spec = find_spec(package)
    assert spec is not None  # noqa: S101  # we have imported it
    homes = map(Path, spec.submodule_search_locations or ())
    files = distribution(package).files or ()
    return [*homes, *(Path(str(file.locate())).parent for file in files if file.name == "METADATA")]


def pack(directory: Path, archive: Path) -> None:
    """Write the files of a directory into an archive."""
    with ZipFile(archive, "w", ZIP_DEFLATED) as zipped:
        for file in sorted(directory.rglob("*")):
            if file.is_file() and file.parent.name != "__pycache__":
                zipped.write(file, file.relative_to(directory))

"""Starting Spark: with the Java and the Python that are found, or a sentence that says what is missing."""

import logging
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.model.errors import BadRequest, PenstockError, Unavailable

_JAVA_MIN = 17
#: All cores of this machine, in this process.
_LOCAL = "local[*]"
_MASTERS = ("local", "spark://", "yarn", "k8s://")
#: Set where spark-submit has started us: then it has chosen the master too.
_SUBMITTED = "PYSPARK_GATEWAY_PORT"
#: Of one of our errors in the text of one of Spark's.
_OURS = re.compile(r"penstock\.model\.errors\.\w+: (.+)")
#: What Spark puts before and after its sentences.
_CODES = re.compile(r"^\[[A-Z_.]+\] | SQLSTATE: .*$")

_OPTIONS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
}
#: What a Python says of itself: its version, and what is missing.
_PYTHON_TOLD = """
import importlib.util, sys
missing = [name for name in ("numpy", "pyarrow") if importlib.util.find_spec(name) is None]
print("%d.%d" % sys.version_info[:2], " and no ".join(missing))
"""
#: Errors come to the caller as exceptions; Java need not write them to the terminal too.
_LOGGING = Path(__file__).with_name("log4j2.properties")
#: Of a Spark that is ours alone: it opens nothing to the network.
_LOCAL_OPTIONS = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": str(max(2, os.cpu_count() or 2)),
}


def started(master: str | None = None) -> SparkSession:
    """Return a session: of our own Spark, unless a master is named or spark-submit has started us."""
    builder = SparkSession.builder.appName("penstock")
    options = dict(_OPTIONS)
    if _SUBMITTED not in os.environ:
        check_master(master)
        check_java()
        builder = builder.master(master or _LOCAL)
        if master is None or master.startswith("local"):
            # The workers are children of this process: let them be the Python that runs it.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
            del options["spark.log.level"]  # the file of _LOGGING says it, and Spark does not tell that it has heard it
            options |= _LOCAL_OPTIONS
            options["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}"
        check_python()
    logging.getLogger("SQLQueryContextLogger").disabled = True  # the same from Python
    for name, value in options.items():
        builder = builder.config(name, value)
    try:
        return builder.getOrCreate()
    except PySparkException as error:
        raise Unavailable(f"Spark did not start: {sentence_of(error)}", key="master") from None
    except Py4JJavaError:
        raise Unavailable(
            f"Spark did not start: its master does not answer, or is not of Spark {pyspark.__version__} as here",
            key="master",
        ) from None


def check_master(master: str | None) -> None:
    """See that a master is one; what Spark says otherwise is long."""
    if master is not None and not master.startswith(_MASTERS):
        raise BadRequest(f"{master!r} is no master of Spark; one is called as in spark://HOST:7077", key="master")


def check_java() -> None:
    """See that there is a Java that Spark can use."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    wanted = f"Spark needs Java {_JAVA_MIN} or later: install it (openjdk-17-jre-headless), or set JAVA_HOME to it"
    if java is None:
        raise Unavailable(f"{wanted}; there is no java on the PATH", key="java")
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603
    except (OSError, subprocess.CalledProcessError):
        raise Unavailable(f"{wanted}; {java} does not run", key="java") from None
    found = re.search(r'version "(?:1\.)?(\d+)', told)  # Java 8 calls itself 1.8
    if found is None or int(found[1]) < _JAVA_MIN:
        version = "of an unknown version" if found is None else f"Java {found[1]}"
        raise Unavailable(f"{wanted}; {java} is {version}", key="java")


def check_python() -> None:
    """See that the Python of the workers is there and fits; Spark starts it on this machine too, to plan with."""
    python = os.environ.get("PYSPARK_PYTHON", "python3")
    own = "{}.{}".format(*sys.version_info)
    wanted = f"Spark's workers need Python {own} as here, with numpy and pyarrow: set PYSPARK_PYTHON to one"
    try:
        ran = subprocess.run([python, "-c", _PYTHON_TOLD], capture_output=True, text=True, check=False)  # noqa: S603
    except OSError:
        raise Unavailable(f"{wanted}; {python} does not run", key="python") from None
    version, _, missing = ran.stdout.strip().partition(" ")
    if version != own:
        raise Unavailable(f"{wanted}; {python} is Python {version or 'of an unknown version'}", key="python")
    if missing:
        raise Unavailable(f"{wanted}; {python} has no {missing}", key="python")


def sentence_of(error: BaseException) -> str:
    """Return what went wrong in a sentence: our own, where one is inside what Spark says."""
    if isinstance(error, PenstockError):
        return error.message
    text = str(error)
    ours = _OURS.search(text)
    first = ours[1] if ours is not None else text.strip().splitlines()[0]
    return _CODES.sub("", first)

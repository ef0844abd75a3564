"""The build of wheels: compiles the modules in which the time of a message goes, by mypyc, where there is a C compiler.

The sources go into the wheel too, and do the same without having been compiled; PENSTOCK_COMPILE=0 leaves it at that, and
PENSTOCK_COMPILE=1 fails where it is not possible.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

#: Rooms and modules, under src/penstock, through which every message goes.
COMPILED = ("model", "engine", "protocols/stomp")
#: Those among them that look at what callers give them: compiled, they would raise TypeError before they have looked;
#: and a class that msgspec makes, from keywords that mypyc leaves out.
INTERPRETED = ("model/errors.py", "model/publication.py", "model/settings.py", "model/staged.py")
#: The shared library that holds them all; each module has a small one that points there.
LIBRARY = "penstock"
_CHOICE = os.environ.get("PENSTOCK_COMPILE", "")


class CompilingHook(BuildHookInterface[Any]):
    """See the module. An editable install is never compiled: what is edited is what runs."""

    def dependencies(self) -> list[str]:
        """Return what compiling needs."""
        return ["mypy>=2.4", "setuptools>=70"] if is_wanted() else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Put the compiled modules into the wheel."""
        if version == "editable" or not is_wanted():
            return
        self._made = tempfile.TemporaryDirectory(prefix="penstock-build-")
        try:
            built = compiled(Path(self.root) / "src", Path(self._made.name))
        except subprocess.CalledProcessError as error:
            if _CHOICE == "1":
                raise
            self.app.display_warning(f"nothing is compiled, since that failed: {error}")
            return
        build_data["force_include"].update({str(file): name for file, name in built.items()})
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002  # hatch's names
        """Remove what was made on the way."""
        if hasattr(self, "_made"):
            self._made.cleanup()


def is_wanted() -> bool:
    """Tell whether to compile: as PENSTOCK_COMPILE says, else where there is a compiler with Python's headers."""
    if _CHOICE:
        return _CHOICE != "0"
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    return shutil.which(compiler) is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


def compiled(source: Path, work: Path) -> dict[Path, str]:
    """Compile, and return the libraries by the names that they have in the wheel."""
    command = [sys.executable, str(Path(__file__).resolve()), str(work)]
    # In a process of its own, since mypyc looks for modules where it stands.
    subprocess.run(command, cwd=source, check=True)  # noqa: S603  # this file, run by this interpreter
    libraries = work / "lib"
    return {file: str(file.relative_to(libraries)) for file in libraries.rglob("*") if file.is_file()}


def main(work: Path) -> None:
    """Compile what stands in the current directory."""
    from mypyc.build import mypycify  # noqa: PLC0415  # it is there only where something is compiled
    from setuptools import Distribution  # noqa: PLC0415  # likewise

    package = Path("penstock")
    chosen = [one for path in COMPILED for one in _modules(package / path)]
    modules = [str(path) for path in chosen if str(path.relative_to(package)) not in INTERPRETED]
    extensions = mypycify(
        ["--ignore-missing-imports", *modules],
        opt_level="3",
        debug_level="0",
        target_dir=str(work / "c"),
        group_name=LIBRARY,
    )
    build = Distribution({"ext_modules": extensions}).get_command_obj("build_ext")
    build.build_lib, build.build_temp = str(work / "lib"), str(work / "objects")
    build.ensure_finalized()
    build.run()


def _modules(path: Path) -> list[Path]:
    """Return a module, or those of a room."""
    return [path] if path.suffix else sorted(one for one in path.glob("*.py") if one.name != "__init__.py")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

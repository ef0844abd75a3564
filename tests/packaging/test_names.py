"""What `import penstock` gives, and what it costs."""

import subprocess
import sys
from importlib import resources
from importlib.metadata import version

import pytest

import penstock
from penstock.model import errors


def test_the_version_is_that_of_the_distribution() -> None:
    """Whoever asks either place hears the same."""
    assert penstock.__version__ == version("penstock")


def test_every_error_is_exported() -> None:
    """An error that a caller may meet can be caught by its name in `penstock`."""
    ours = {
        name for name, value in vars(errors).items() if isinstance(value, type) and value.__module__ == errors.__name__
    }
    assert ours <= set(penstock.__all__)
    assert all(getattr(penstock, name) is getattr(errors, name) for name in ours)


def test_public_names_are_listed_before_they_are_imported() -> None:
    """`dir(penstock)` helps those who explore."""
    assert set(penstock.__all__) <= set(dir(penstock))


def test_an_unknown_name_is_an_attribute_error() -> None:
    """Not something about imports."""
    with pytest.raises(AttributeError, match="no attribute 'Brokre'"):
        _ = penstock.Brokre


def test_importing_it_is_quick() -> None:
    """Only what somebody asks for is imported, so a script that wants the version does not pay for an event loop."""
    code = "import sys, penstock; print(sorted(m for m in sys.modules if m == 'asyncio' or m.startswith('penstock.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_types_are_published() -> None:
    """Type checkers look into the installed package."""
    assert (resources.files("penstock") / "py.typed").is_file()

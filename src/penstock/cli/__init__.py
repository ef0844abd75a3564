"""The command `penstock`."""

from penstock.cli.main import app

__all__ = ["app"]

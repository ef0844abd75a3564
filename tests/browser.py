"""A real browser for tests: Chromium without a window, which opens a page and tells what became of it."""

import json
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

from tests.conftest import require

_SECONDS = 60.0
#: Where a page puts what it wants to tell.
_BEGIN, _END = '<pre id="told">', "</pre>"


def told_by(url: str, directory: Path, width: int = 1000) -> Any:
    """Open a page, and return the JSON that its modules have put into `pre#told` when it is loaded."""
    browser = shutil.which("chromium")
    require(browser, "chromium is not installed")
    assert browser is not None
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    profile = f"--user-data-dir={directory / 'profile'}"
    command = [browser, *options, profile, f"--window-size={width},1200", url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=True)
    _, begin, rest = done.stdout.partition(_BEGIN)
    told, end, _ = rest.partition(_END)
    assert begin, done.stdout[-2000:]
    assert end, done.stdout[-2000:]
    return json.loads(unescape(told))

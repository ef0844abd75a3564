"""What all tests share: how a test says that something it needs is not there."""

import os

import pytest


def require(condition: object, reason: str) -> None:
    """Skip the test with the reason unless the condition holds; with CI=true nothing is skipped, so it fails."""
    if condition:
        return
    if os.environ.get("CI", "").lower() in {"1", "true", "yes"}:
        pytest.fail(f"missing, and with CI=true nothing may be skipped: {reason}", pytrace=False)
    pytest.skip(reason)

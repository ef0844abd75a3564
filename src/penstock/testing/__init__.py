"""For the tests of those who extend Penstock: what every store promises, as classes to inherit from (docs/storage.md).

It needs pytest, which Penstock itself does not.
"""

import pytest

# Before the import: so that a promise that is not kept shows what was found.
pytest.register_assert_rewrite("penstock.testing.stores")

from penstock.testing.stores import (  # noqa: E402
    AnyStore,
    CollectingStore,
    DurableRecallingStore,
    DurableStore,
    Factory,
    RecallingStore,
)

__all__ = ["AnyStore", "CollectingStore", "DurableRecallingStore", "DurableStore", "Factory", "RecallingStore"]

"""How the log is cut into partitions."""

import pytest

from penstock.pipeline.log_client import Stretch
from penstock.pipeline.source_reading import grouped

MIB = 2**20


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ([], []),
        ([1], [1]),
        ([16, 16, 16], [1, 1, 1]),
        ([2, 3, 4, 16, 1], [4, 1]),
        ([16] * 28, [4] * 7),
        ([16] * 640, [4] * 160),
        ([100, 1, 1], [1, 2]),
    ],
)
def test_stretches_are_put_together(sizes: list[int], groups: list[int]) -> None:
    """In their order, none twice and none left out: neither tiny partitions nor few of them for a large log."""
    stretches = [
        Stretch(number, 0, 512, 512 + size * MIB, number, number, 0.0, 0.0) for number, size in enumerate(sizes)
    ]
    found = grouped(stretches)
    assert [len(group) for group in found] == groups
    assert [stretch for group in found for stretch in group] == stretches

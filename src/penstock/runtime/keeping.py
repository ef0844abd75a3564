"""What the store keeps for a backup although it is settled meanwhile: that is told to the store afterwards."""

from array import array

#: Told with one batch at most, so that no commit is held up by what gathered during a long backup.
TOLD_AT_ONCE = 10_000


class Keeping:
    """Holds back which messages are gone, between the engine and the store."""

    __slots__ = ("_before", "_held")

    def __init__(self) -> None:
        #: Messages with lower sequences are kept; 0 while nobody needs them.
        self._before = 0
        self._held: array[int] = array("Q")

    def begin(self, before: int) -> None:
        """Keep all messages before this position from now on. Later ones go as ever, so what gathers has a bound."""
        self._before = before

    def end(self) -> None:
        """Keep nothing any longer."""
        self._before = 0

    def sift(self, gone: list[int]) -> list[int]:
        """Return which messages the store may be told to be gone."""
        before, held = self._before, self._held
        if before:
            held.extend([sequence for sequence in gone if sequence < before])
            return [sequence for sequence in gone if sequence >= before]
        if held:
            gone = [*gone, *held[-TOLD_AT_ONCE:]]
            del held[-TOLD_AT_ONCE:]
        return gone

"""Heart-beats of a STOMP session: when the next is to be sent, and when the peer has been silent for too long."""

from math import inf

#: A peer is given up when nothing came for this many times the interval that was agreed on, and one second at least.
GRACE = 2.0
GRACE_SECONDS_MIN = 1.0


class HeartBeats:
    """Seconds between heart-beats that were agreed on, 0 for none, and when the last ones were."""

    __slots__ = ("_beat_at", "_heard_at", "expected", "is_heard", "sent")

    def __init__(self) -> None:
        self.sent = 0.0
        self.expected = 0.0
        #: Whether anything has come since somebody last looked.
        self.is_heard = False
        self._beat_at = inf
        self._heard_at = 0.0

    def agree(self, expected: float, sent: float) -> None:
        """Begin with what the login has brought."""
        self.expected, self.sent = expected, sent

    def is_due(self, now: float) -> bool:
        """Tell whether one is to be sent now, and count it as sent.

        Twice as often as was agreed on: peers count how long they have heard nothing, whatever else was sent.
        """
        if not self.sent:
            return False
        is_first = self._beat_at == inf
        if not is_first and now < self._beat_at:
            return False
        self._beat_at = now + self.sent / 2
        return not is_first

    def is_silent(self, now: float) -> bool:
        """Tell whether the peer is to be given up."""
        if not self.expected:
            return False
        if self.is_heard:
            self.is_heard, self._heard_at = False, now
        return now - self._heard_at > self._grace

    def next_time(self, now: float) -> float:
        """Return when to look again."""
        return min(self._beat_at, now + self._grace / 2 if self.expected else inf)

    @property
    def _grace(self) -> float:
        return max(GRACE * self.expected, self.expected + GRACE_SECONDS_MIN)

"""Names of what is gone: kept as long as the log may ask for them, and not for more than a memory's worth."""

import pytest

from penstock.engine import departed
from penstock.engine.departed import CursorName, Departed
from tests.engine.rig import Rig, key


def test_names_stay_while_the_log_speaks_of_them() -> None:
    """What went before the log begins is forgotten."""
    rig = Rig()
    queue = rig.engine.channels.create_queue(key("q", "b", "a"), 1.0, {}, exclusive=False)
    rig.engine.delete(queue.key, 2.0)
    rig.flush()
    gone = rig.connect()
    rig.engine.clients.forget(gone, 3.0)
    rig.flush()
    effects, name = rig.engine.effects, CursorName("queue", "q", ("a", "b"))
    assert rig.engine.cursor_names({queue.number, 99}) == {queue.number: name}
    assert rig.engine.client_ids([gone.number, 99]) == {gone.number: gone.id}
    assert rig.restart().engine.cursor_names({queue.number}) == {queue.number: name}

    effects.departed.forget_before(effects.position - 2)
    assert rig.engine.cursor_names({queue.number}) == {}
    assert rig.engine.client_ids([gone.number]) == {gone.number: gone.id}
    effects.departed.forget_before(effects.position)
    assert rig.engine.client_ids([gone.number]) == {}


def test_the_longest_gone_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many come and go, a few thousand names stay."""
    monkeypatch.setattr(departed, "DEPARTED_MAX", 3)
    names = Departed()
    for number in range(1, 6):
        names.client_went(number, number * 10, b"%d" % number)

    assert [names.client(number) for number in range(1, 6)] == [None, None, b"3", b"4", b"5"]
    again = Departed()
    again.load(**names.dump())
    assert again.dump() == names.dump()

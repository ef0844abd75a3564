"""How soon a store that was lost is had again."""

from functools import partial

import pytest

from penstock.assembly import languages
from penstock.config import settings_from
from penstock.engine.readers import Retention
from penstock.model.errors import StoreFailed
from penstock.model.limits import Limits
from penstock.runtime.runtime import Runtime
from penstock.server import succession as module
from penstock.server.server import READY, ServerOptions
from penstock.server.succession import Maker, Succession
from penstock.store.memory import Memory


class SharedStore(Memory):
    """One that several may point at."""

    is_shared = True


@pytest.mark.parametrize(("settled", "waited"), [(60.0, 0.008), (0.0, 0.001)])
async def test_a_store_that_is_lost_at_once_is_had_again_the_more_slowly(
    settled: float, waited: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to a longest wait; one that served for long is had again as soon as can be."""
    for name, seconds in (("CONTEND_SECONDS", 0.001), ("AWAY_SECONDS_MAX", 0.008), ("SETTLED_SECONDS", settled)):
        monkeypatch.setattr(module, name, seconds)
    terms: list[Runtime] = []

    def runtime() -> Runtime:
        terms.append(Runtime(SharedStore(), limits=Limits(), auto_create=True, retention=Retention(0.0, 0, 0)))
        if len(terms) == 6:
            succession.stop()
        return terms[-1]

    def lose(line: str) -> None:
        if line == READY:
            terms[-1].fail(StoreFailed("there is no room", key="store"))

    settings = settings_from({"listen": ["127.0.0.1:0"], "stomp_listen": ["none"], "grpc_listen": ["none"]}, {}, None)
    succession = Succession(Maker(runtime, partial(languages, settings), {}), ServerOptions([]))
    assert await succession.run(lose) is None
    assert succession._wait_seconds == waited

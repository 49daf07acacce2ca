"""What an operator of ours does to jobs of qless is what its own client does, and qless goes on with it."""

from __future__ import annotations

import pytest
import redis
from ferryman.compat.qless.live import Core, QlessLive
from ferryman.compat.qless.steering import QlessSteering
from ferryman.schema.connection.call import run
from ferryman.schema.steering import Action, Value

from ...support.foreign_keys import seen
from ...support.servers import Server
from .cores import PACKAGES, Original
from .tellers import OriginalTeller
from .test_same_story import heard, messages, normal

pytestmark = pytest.mark.in_turn

NOW = 1_795_000_000_000


def _begin(client: redis.Redis, core: Core, story: str) -> OriginalTeller:
    """A job of the original's own, waiting, scheduled, failed or complete, and a second one."""
    original = OriginalTeller(Original(client, core))
    original.put(NOW, "mail", "job", {}, delay=60 if story == "scheduled" else 0, priority=2)
    if story in ("failed", "complete"):
        assert original.pop(NOW + 1000, "mail", "w", 1) == ["job"]
        if story == "failed":
            assert original.fail(NOW + 2000, "mail", "w", "job", "mail-Error", {}) == "done"
        else:
            assert original.complete(NOW + 2000, "mail", "w", "job", {}) == "done"
    original.put(NOW + 3000, "mail", "other", {})
    return original


def _ours(client: redis.Redis, core: Core, action: Action, value: Value = None) -> str:
    return run(client, QlessSteering(QlessLive(core=core)).act(action, "mail", "job", value, now=NOW + 4000))


@pytest.mark.parametrize("core", PACKAGES)
@pytest.mark.parametrize(
    ("story", "action", "value"),
    [
        ("failed", Action.REQUEUE, None),
        ("complete", Action.REQUEUE, None),
        ("waiting", Action.MOVE, "video"),
        ("waiting", Action.REPRIORITISE, 7),
        ("scheduled", Action.REPRIORITISE, 7),
        ("waiting", Action.CANCEL, None),
        ("scheduled", Action.CANCEL, None),
        ("failed", Action.DELETE, None),
    ],
)
def test_the_same_keys_and_messages_as_by_its_own_client(
    server: Server, core: Core, story: str, action: Action, value: Value
) -> None:
    with server.client(0) as theirs, server.client(1) as ours, heard(theirs) as pubsub:
        original = _begin(theirs, core, story)
        _begin(ours, core, story)
        messages(pubsub, theirs, "0")
        match action:
            case Action.REQUEUE | Action.MOVE:
                target = value if isinstance(value, str) else "mail"
                original.put(NOW + 4000, target, "job", {})
            case Action.REPRIORITISE:
                original.priority(NOW + 4000, "job", 7)
            case _:
                original.cancel(NOW + 4000, ["job"])
        published = messages(pubsub, theirs, "1")
        assert _ours(ours, core, action, value) == "done"
        # Channels know no databases.
        assert messages(pubsub, theirs, "2") == published
        assert normal(seen(ours)) == normal(seen(theirs))


@pytest.mark.parametrize("core", PACKAGES)
def test_the_original_runs_what_was_promoted_and_knows_what_is_paused(server: Server, core: Core) -> None:
    with server.client(0) as client:
        original = _begin(client, core, "scheduled")
        assert _ours(client, core, Action.PROMOTE) == "done"
        steering = QlessSteering(QlessLive(core=core))
        assert run(client, steering.pause("mail"))
        assert original.pop(NOW + 5000, "mail", "w", 2) == []
        assert original.core.json("queues", NOW + 5000, "mail")["paused"]
        assert run(client, steering.resume("mail"))
        assert original.pop(NOW + 5000, "mail", "w", 2) == ["job", "other"]

"""Sender: stores messages in the queues that their exchange and routing key name, in one round trip where that can be.

Used by publishers and for dead letters, which differ in where their ids come from and in what becomes of a message that no queue
takes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ...schema.connection.call import Call, Command
from ...schema.errors import PublishRefused
from ...schema.native import keys
from ...schema.native.routing import NO_HEADERS
from ...schema.native.scripts.publication import Publication
from ...schema.native.scripts.results import Published
from ..connection.link import AnyCall
from ..errors import BrokerFull
from ..live.foreign_queue import ForeignQueue
from ..session import Session
from .durability import Durability

if TYPE_CHECKING:
    from ..live.keyspace import ForeignKeyspace

FANOUT_MAXLEN = 10_000
"""Messages a broadcast stream keeps, about; a subscriber that is away for longer than these misses the oldest."""

MAX_LIMITED = 10_000
"""Queues that a publisher remembers as having limits."""


class OutgoingMessage(NamedTuple):
    """A message on its way."""

    publication: Publication
    exchange: str
    routing_key: str
    is_repeated: bool = False
    """Whether it was sent before, and no answer came."""
    headers: Mapping[str, Any] = NO_HEADERS
    """For exchanges that route by them."""
    is_mandatory: bool = False
    """Whether it comes back if no queue takes it."""


class QueueBatch(NamedTuple):
    """Messages for one queue."""

    queue: str
    publications: Sequence[Publication]
    routes: int | None = None
    """The version of the queue's routes by which they were found."""


class Sender:
    """Not thread-safe. Sending a message again, ``is_repeated``, stores it once."""

    def __init__(
        self, session: Session, on_dead_letters: Callable[[str], None], *, creates: bool = True, is_ordered: bool = False
    ) -> None:
        """``creates``: a message to the default exchange makes a queue that was never declared, as on ``redis://``.

        ``is_ordered``: the numbers of the ids are those of ``QueueScripts.publish(ordered=True)``. ``on_dead_letters`` is called
        with each queue in which storing a message made others dead letters.
        """
        self._session = session
        self._on_dead_letters = on_dead_letters
        self._creates = creates
        self._is_ordered = is_ordered
        self._durability = Durability(session.settings.durability, session.settings.reply_timeout)
        self._limited: set[str] = set()
        """Queues that the short script does not serve."""

    def send(self, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        """Stores messages, those for one queue in one call. Gives those that no queue wants, nor one of an alternate exchange.

        Raises BrokerFull and connection errors.
        """
        try:
            return [message for message in self._send(messages) if not self._is_diverted(message)]
        except PublishRefused as error:
            raise BrokerFull(str(error)) from error

    def _is_diverted(self, message: OutgoingMessage) -> bool:
        """Offers a message to the alternate exchanges of its own, and then, if that is direct, to ``deadletter_queue``.

        Whether a queue has taken it.
        """
        if not message.exchange:
            return False
        routes, fallback = self._session.routes, self._session.settings.deadletter_queue
        alternates = routes.alternates(message.exchange)
        if any(not self._send([message._replace(exchange=exchange)]) for exchange in alternates):
            return True
        if not fallback or routes.type_of(message.exchange) != "direct":
            return False
        return not self._send([message._replace(exchange="", routing_key=fallback)])

    def _send(self, messages: Sequence[OutgoingMessage]) -> list[OutgoingMessage]:
        session = self._session
        direct: dict[str, list[OutgoingMessage]] = {}
        routed: dict[str, list[OutgoingMessage]] = {}
        broadcasts: list[OutgoingMessage] = []
        for message in messages:
            if not message.exchange:
                direct.setdefault(self._target(message.routing_key, message), []).append(message)
            elif session.routes.is_fanout(message.exchange):
                broadcasts.append(message)
            else:
                routed.setdefault(message.exchange, []).append(message)
        unroutable = self._send_unrouted(direct, broadcasts) if direct or broadcasts else []
        for exchange, those in routed.items():
            if session.foreign is None:
                unroutable += self._send_routed(exchange, those)[0]
                continue
            asked = session.foreign.queues_bound(exchange, {message.routing_key for message in those})
            left, answers = self._send_routed(exchange, those, list(asked.values()))
            unroutable += self._send_bound(exchange, those, left, dict(zip(asked, answers, strict=True)))
        return unroutable

    def _target(self, queue: str, message: OutgoingMessage) -> str:
        """The queue behind a plain name: tasks may go to another system's. Raises connection errors."""
        foreign = self._session.foreign
        return queue if foreign is None else foreign.target(queue, message.headers)

    def _send_unrouted(
        self, direct: Mapping[str, list[OutgoingMessage]], broadcasts: Sequence[OutgoingMessage]
    ) -> list[OutgoingMessage]:
        """Publishes what needs no routes: to queues by name, and to streams. Gives the messages that nobody has taken."""
        batches = [QueueBatch(queue, [each.publication for each in those]) for queue, those in direct.items()]
        results, stream_ids = self._send_batches(batches, [self._broadcast(message) for message in broadcasts])
        unroutable = []
        for (queue, those), result in zip(direct.items(), results, strict=True):
            if not self._is_stored(queue, result):
                unroutable += those
        return unroutable + [message for message, stream_id in zip(broadcasts, stream_ids, strict=True) if not stream_id]

    def _broadcast(self, message: OutgoingMessage) -> Call[bytes]:
        frame, is_repeated = message.publication.message, message.is_repeated
        return self._session.exchanges.fanout_publish(message.exchange, frame, FANOUT_MAXLEN, is_repeated)

    def _send_routed(
        self, exchange: str, messages: Sequence[OutgoingMessage], others: Sequence[AnyCall] = ()
    ) -> tuple[list[OutgoingMessage], list[Any]]:
        """Publishes by the cached bindings and checks them in the same round trip, until they are the current ones.

        Gives the messages that no queue has taken, and the results of other calls, which go along.
        """
        session = self._session
        table = session.routes.table(exchange)
        stored: set[tuple[str, str]] = set()
        while True:
            wanted: dict[str, list[Publication]] = {}
            for message in messages:
                for name in table.queues(message.routing_key, message.headers):
                    queue = self._target(name, message)
                    if (queue, message.publication.id) not in stored:
                        wanted.setdefault(queue, []).append(message.publication)
            batches = [QueueBatch(queue, those, table.routes[str(queue)]) for queue, those in wanted.items()]
            results, (version, *answers) = self._send_batches(batches, [session.exchanges.version(exchange), *others])
            for (queue, those), result in zip(wanted.items(), results, strict=True):
                if self._is_stored(queue, result):
                    stored.update((queue, publication.id) for publication in those)
            if version == table.version and not any(result.status == "stale" for result in results):
                break
            table = session.routes.refresh(exchange)
        if any(result.status == "missing" for result in results):
            session.routes.forget(exchange)
        arrived = {job_id for _, job_id in stored}
        return [message for message in messages if message.publication.id not in arrived], answers

    def _send_bound(
        self,
        exchange: str,
        messages: Sequence[OutgoingMessage],
        left: list[OutgoingMessage],
        bound: Mapping[str, Sequence[str]],
    ) -> list[OutgoingMessage]:
        """Publishes to queues that only the other system has bound to the exchange. Gives those that no queue has taken.

        ``left``: those that no queue bound by ferryman has. ``bound``: for each routing key the other system's own queues.
        """
        if not any(bound.values()):
            return left
        table = self._session.routes.table(exchange)
        wanted: dict[str, list[Publication]] = {}
        taken: set[str] = set()
        for message in messages:
            known = table.queues(message.routing_key, message.headers)
            for queue in bound.get(message.routing_key, ()):
                if queue not in known:
                    wanted.setdefault(ForeignQueue(queue), []).append(message.publication)
                    taken.add(message.publication.id)
        self._send_batches([QueueBatch(queue, those) for queue, those in wanted.items()], [])
        return [message for message in left if message.publication.id not in taken]

    def _send_batches(self, batches: Sequence[QueueBatch], others: Sequence[AnyCall]) -> tuple[list[Published], list[Any]]:
        """Sends batches and other calls in one round trip, and another for what the short script leaves to the long one."""
        if self._session.foreign is not None and any(type(batch.queue) is ForeignQueue for batch in batches):
            return self._send_with_foreign(self._session.foreign, batches, others)
        calls = [self._plain_call(batch) or self._call(batch) for batch in batches]
        results = self._durability.run_all(self._session.link, [*calls, *others])
        published, replies = results[: len(calls)], results[len(calls) :]
        left = [at for at, result in enumerate(published) if result.status == "other"]
        if left:
            rest = [self._call(batches[at]) for at in left]
            for at, result in zip(left, self._durability.run_all(self._session.link, rest), strict=True):
                published[at] = result
                is_limited = result.status in ("stored", "overflow") and all(result.fresh) and not result.created
                if is_limited and len(self._limited) < MAX_LIMITED:
                    self._limited.add(batches[at].queue)
        return published, replies

    def _send_with_foreign(
        self, foreign: ForeignKeyspace, batches: Sequence[QueueBatch], others: Sequence[AnyCall]
    ) -> tuple[list[Published], list[Any]]:
        """The same where some batches become jobs of another system; first those of ferryman's own."""
        theirs = {at: batch for at, batch in enumerate(batches) if type(batch.queue) is ForeignQueue}
        puts = {at: foreign.puts(batch.queue, batch.publications) for at, batch in theirs.items()}
        native = [at for at in range(len(batches)) if at not in theirs]
        # The other system's queues know nothing of our bindings, so what is to go there waits until these are known to stand.
        routed = {at: batch for at, batch in theirs.items() if batch.routes is not None}
        versions = [self._session.scripts.routes(str(batch.queue)) for batch in routed.values()]
        published, answers = self._send_batches([batches[at] for at in native], [*others, *versions])
        replies, found = answers[: len(others)], answers[len(others) :]
        stale = {at for (at, batch), version in zip(routed.items(), found, strict=True) if version != batch.routes}
        results = dict(zip(native, published, strict=True))
        sent: list[AnyCall] = [call for at, calls in puts.items() if at not in stale for call in calls]
        # Who looks for tasks in all queues is to find them in those as well that nobody has declared.
        sent += (self._listing(batch.queue) for batch in theirs.values() if batch.routes is None)
        self._durability.run_all(self._session.link, sent)
        for at, batch in theirs.items():
            results[at] = Published("stale" if at in stale else "stored", (True,) * len(batch.publications))
        return [results[at] for at in range(len(batches))], replies

    def _listing(self, queue: str) -> Command[int]:
        """Notes that there is such a queue."""
        return Command(("SADD", keys.queues(self._session.settings.prefix), str(queue)), int)

    def _plain_call(self, batch: QueueBatch) -> Call[Published] | None:
        """The script for one plain message and a queue without limits; None where that will not do."""
        queue, publications, routes = batch
        if self._is_ordered or len(publications) > 1 or queue in self._limited or self._durability.needed:
            return None  # nobody is to wait for the confirmation of what the short script may not have stored
        return self._session.scripts.publish_one(queue, _producer(publications), publications[0], routes=routes)

    def _call(self, batch: QueueBatch) -> Call[Published]:
        queue, publications, routes = batch
        return self._session.scripts.publish(
            queue,
            _producer(publications),
            publications,
            create=self._creates and routes is None,
            routes=routes,
            priority_order=self._session.settings.priority_order,
            ordered=self._is_ordered,
        )

    def _is_stored(self, queue: str, result: Published) -> bool:
        """Whether the queue has the messages. Raises BrokerFull for one that is at its greatest length and rejects more."""
        if result.status == "overflow":
            raise BrokerFull(f"queue {queue!r} is full (x-max-length) and rejects new messages; nothing was stored in it")
        if result.created:
            self._session.register(keys.queues(self._session.settings.prefix), queue)
        if result.has_dead_letters:
            self._on_dead_letters(queue)
        if result.more:
            self._renew_all(queue)
        return result.status == "stored"

    def _renew_all(self, queue: str) -> None:
        """Keeps the jobs of a temporary queue, of which one call renews a part: perhaps nobody else comes before they expire."""
        while self._session.link.run(self._session.scripts.advance(queue)).more:
            pass


def _producer(publications: Sequence[Publication]) -> str:
    """Whose numbers their ids are."""
    return publications[0].id.rpartition("-")[0]

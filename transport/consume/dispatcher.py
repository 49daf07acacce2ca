"""Dispatcher: what a channel knows of the poller, which hands messages to its consumers."""

from __future__ import annotations

from collections.abc import Container
from typing import Protocol

from kombu.transport.base import StdChannel


class Dispatcher(Protocol):
    """Hands the messages of one connection to its consumers."""

    @property
    def is_busy(self) -> bool:
        """Whether it will soon flush acks by itself."""

    def watch(self, queue: str) -> None:
        """A consumer has begun on this queue. Raises connection errors."""

    def unwatch(self, queue: str) -> None:
        """A consumer of this queue has gone."""

    def changed(self) -> None:
        """Room or queues have changed: look again. From any thread."""

    def drop(self, channel: StdChannel, tags: Container[int]) -> set[int]:
        """Drops messages that were taken for a channel and belong to others now, as far as they are not handed out yet.

        Gives the tags of those.
        """

    def forget(self, channel: StdChannel) -> None:
        """Drops all that was taken for a channel that closes; the channel gives the jobs back."""

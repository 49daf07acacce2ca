"""Background: what takes longer than a page may: looks at a whole database, audits. One at a time of each kind and keyspace.

A page asks for what was found last and starts a new look where none is under way; it never waits for long. What was found stays
in memory until the next one. Called by the pages.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from attrs import define, evolve, field

from ...schema.errors import FerrymanError

T = TypeVar("T")

MOST_KEPT = 64
"""Looks of which the results are remembered."""
MOST_AT_ONCE = 4
"""Looks under way."""

logger = logging.getLogger("ferryman.ui")


@define(eq=False)
class Look(Generic[T]):
    """One thing to find out, again and again."""

    find: Callable[[Look[Any]], T]
    found: T | None = None
    failure: str = ""
    """Why the last one found nothing."""
    started: float = 0.0
    """Unix s."""
    finished: float = 0.0
    """Unix s; 0: none has finished yet."""
    progress: str = ""
    """How far it is, for people."""
    is_running: bool = False
    wants_end: threading.Event = field(factory=threading.Event)
    """Set by who doesn't want the result any more: long ones look at it."""
    _done: threading.Condition = field(factory=threading.Condition, repr=False)

    @property
    def seconds(self) -> float:
        """How long the last one took, or the one under way has by now."""
        return (time.time() if self.is_running else self.finished) - self.started

    @property
    def age_s(self) -> float | None:
        """How old the result is."""
        return time.time() - self.finished if self.finished else None

    def seen(self) -> Look[T]:
        """What it is at this moment, for a page: one that ends while the page is made would be neither under way nor found."""
        with self._done:
            return evolve(self)

    def wait(self, seconds: float) -> None:
        """Returns when the one under way has finished, or after so long."""
        with self._done:
            self._done.wait_for(lambda: not self.is_running, seconds)

    def run(self) -> None:
        """In a thread: finds it, once."""
        found, failure = self.found, "this failed for a reason that stands in the log of ferryman ui"
        try:
            found, failure = self.find(self), ""
        except (FerrymanError, OSError) as error:
            failure = str(error)
        except Exception:
            logger.exception("a look in the background has failed")
        finally:
            with self._done:
                self.found, self.failure = found, failure
                self.finished, self.is_running, self.progress = time.time(), False, ""
                self._done.notify_all()


@define(eq=False)
class Background:
    """All looks by what they are of."""

    _looks: OrderedDict[tuple[str, ...], Look[Any]] = field(factory=OrderedDict)
    _lock: threading.Lock = field(factory=threading.Lock)

    def look(self, name: tuple[str, ...], find: Callable[[Look[Any]], T]) -> Look[T]:
        """The look of this name, as it is; not started."""
        with self._lock:
            if name not in self._looks:
                self._looks[name] = Look(find)
                idle = [each for each, look in self._looks.items() if not look.is_running and each != name]
                for old in idle[: max(0, len(self._looks) - MOST_KEPT)]:
                    del self._looks[old]
            self._looks.move_to_end(name)
            return self._looks[name]

    def start(self, look: Look[Any]) -> bool:
        """Starts it unless it is under way, or too many others are. False: not."""
        with self._lock:
            if look.is_running or sum(each.is_running for each in self._looks.values()) >= MOST_AT_ONCE:
                return False
            look.is_running, look.started = True, time.time()
            look.wants_end.clear()
        threading.Thread(target=look.run, name="ferryman-ui-look", daemon=True).start()
        return True

    def fresh(self, name: tuple[str, ...], find: Callable[[Look[Any]], T], max_age_s: float, patience_s: float = 0.2) -> Look[T]:
        """The look with what it has found; begun anew where that is older, and waited for as long as patience lasts."""
        look = self.look(name, find)
        if look.age_s is None or look.age_s > max_age_s:
            self.start(look)
            look.wait(patience_s)
        return look.seen()

    def forget(self) -> None:
        """What was found is found anew."""
        with self._lock:
            self._looks.clear()

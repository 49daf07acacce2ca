"""Screen: what ``ferryman top`` shows and how keys change it. Pure: ``program.py`` reads keys and draws.

| key | does |
|---|---|
| q | ends |
| ↑ ↓, k j | choose a queue |
| / | filters by a part of the name: text, then Enter; Esc takes the filter away |
| s, S | sorts by the next column, the one before |
| r | turns the order |
| space | stops looking, or goes on |
| p | with --write: pauses the chosen queue or resumes it, after y |
"""

from __future__ import annotations

from typing import Literal

from attrs import define, field

from ...operations.watch import Look
from ...schema.text import plural, show
from .table import SORTS, Row, cut, header, line, rows_of

HELP = "q quit  / filter  s sort  r turn  space stop  ↑↓ choose"
UP, DOWN = "\x1b[A", "\x1b[B"
ESCAPE, BACKSPACES, ENTERS = "\x1b", ("\x7f", "\b"), ("\r", "\n")

Wish = Literal["quit", "look", "pause", "resume"]
"""What a key asks of the program."""


@define
class Screen:
    """The state of the screen."""

    title: str
    can_pause: bool = False
    look: Look | None = None
    trouble: str = ""
    """Why there are no newer numbers."""
    says: str = ""
    """What has come of the last action."""
    text: str = ""
    """The filter."""
    sort: str = "queue"
    is_turned: bool = False
    is_stopped: bool = False
    typing: str | None = None
    """The filter as it is typed; None: nobody types."""
    asks: Row | None = None
    """The queue of which it asks whether to pause or resume it."""
    chosen: str | None = None
    _top: int = field(default=0, init=False)

    def rows(self) -> list[Row]:
        """The queues, in their order."""
        if self.look is None:
            return []
        rows = rows_of(self.look, self.sort, reverse=self.is_turned)
        wanted = (self.typing if self.typing is not None else self.text).casefold()
        return [row for row in rows if wanted in row.name.casefold()]

    def key(self, key: str) -> Wish | None:
        """Takes a key."""
        if self.typing is not None:
            return self._type(key)
        if self.asks is not None:
            return self._answer(key)
        self.says = ""
        match key:
            case "q" | "\x03":
                return "quit"
            case "/":
                self.typing = self.text
            case "\x1b" if self.text:
                self.text = ""
                return "look"
            case "s" | "S":
                step = 1 if key == "s" else -1
                self.sort = SORTS[(SORTS.index(self.sort) + step) % len(SORTS)]
            case "r":
                self.is_turned = not self.is_turned
            case " ":
                self.is_stopped = not self.is_stopped
                return None if self.is_stopped else "look"
            case "k" | "\x1b[A":
                self._choose(-1)
            case "j" | "\x1b[B":
                self._choose(1)
            case "p":
                self._ask()
        return None

    def _type(self, key: str) -> Wish | None:
        typed = self.typing or ""
        if key == "\x03":
            return "quit"
        if key in ENTERS or key == ESCAPE:
            self.text, self.typing = ("" if key == ESCAPE else typed), None
            return "look"
        if key in BACKSPACES:
            self.typing = typed[:-1]
        elif len(key) == 1 and key.isprintable():
            self.typing = typed + key
        return None

    def _ask(self) -> None:
        row = next((row for row in self.rows() if row.name == self.chosen), None)
        if not self.can_pause:
            self.says = "queues can be paused with --write only, in systems that know pauses"
        elif row is None:
            self.says = "choose a queue with ↑ and ↓ first"
        else:
            self.asks = row

    def _answer(self, key: str) -> Wish | None:
        row, is_paused = self.asks, self._is_paused(self.asks)
        if key != "y":
            self.asks = None
            self.says = "nothing was done"
            return "quit" if key == "\x03" else None
        assert row is not None
        self.asks, self.chosen = None, row.name
        return "resume" if is_paused else "pause"

    @staticmethod
    def _is_paused(row: Row | None) -> bool:
        return row is not None and row.numbers is not None and bool(row.numbers.is_paused)

    def _choose(self, step: int) -> None:
        names = [row.name for row in self.rows()]
        if not names:
            return
        at = names.index(self.chosen) + step if self.chosen in names else 0 if step > 0 else len(names) - 1
        self.chosen = names[min(max(at, 0), len(names) - 1)]

    def lines(self, width: int, height: int) -> list[str]:
        """The whole screen, at most so many lines of at most so many columns."""
        rows = self.rows()
        room = max(0, height - 3)
        at = next((index for index, row in enumerate(rows) if row.name == self.chosen), None)
        if at is not None:
            self._top = min(max(self._top, at - room + 1), at)
        self._top = max(0, min(self._top, len(rows) - room))
        shown = rows[self._top : self._top + room]
        lines = [self._heading(len(rows), width), header(width, self.sort)]
        lines += [line(row, width, is_selected=row.name == self.chosen) for row in shown]
        lines += [""] * (room - len(shown))
        return [cut(each, width) for each in (*lines, self._foot())][:height]

    def _heading(self, rows: int, width: int) -> str:
        parts = [show(self.title, width)]
        if self.look is not None:
            asked = f"{rows} of {self.look.queues} queues" if rows != self.look.queues else f"{rows} {plural(rows, 'queue')}"
            parts.append(asked)
        if self.text:
            parts.append(f"filter {show(self.text, 40)!r}")
        if self.is_stopped:
            parts.append("STOPPED")
        return "  ".join(parts)

    def _foot(self) -> str:
        if self.typing is not None:
            return f"filter: {show(self.typing, 60)}_   Enter keeps it, Esc takes it away"
        if self.asks is not None:
            word = "resume" if self._is_paused(self.asks) else "pause"
            return f"{word} queue {show(self.asks.name, 60)}? y does it, any other key does not"
        if self.trouble:
            return f"trying again: {show(self.trouble, 1000)}"
        return self.says or HELP + ("  p pause" if self.can_pause else "")

"""The rules of kue keyspaces, KUE-1 to KUE-31, about jobs and about the keyspace as a whole."""

from __future__ import annotations

from ..rulebook import Rulebook
from .reader import View, view_of

book: Rulebook[View] = Rulebook(view_of)

RULES = book.rules

"""``ferryman top``: watches queues in a terminal. Only reads, unless ``--write`` lets it pause queues."""

from .program import command

__all__ = ["command"]

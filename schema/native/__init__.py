"""ferryman's own key family: keys, message frame, live queue, reader, writer and rules."""

from .family import FAMILY

__all__ = ["FAMILY"]

"""ferryman's own key family: keys, message frame, queue scripts, reader, writer and rules."""

from .family import FAMILY

__all__ = ["FAMILY"]

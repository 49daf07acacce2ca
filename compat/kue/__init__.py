"""kue: the key family of the Node.js job queue kue, versions 0.3 to 0.11.6."""

from .family import FAMILY

__all__ = ["FAMILY"]

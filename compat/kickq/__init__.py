"""kickq: the key family of the Node.js job queue kickq, releases 0.0.1 to 1.1.0."""

from .family import FAMILY

__all__ = ["FAMILY"]

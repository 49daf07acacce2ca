"""bee: the key family of the Node.js job server bee (oleksiyk/bee), all versions. Not bee-queue."""

from .family import FAMILY

__all__ = ["FAMILY"]

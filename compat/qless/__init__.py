"""qless and reqless: the ``ql:`` key family of all nine generations, 2012 to 2024."""

from .family import FAMILY

__all__ = ["FAMILY"]

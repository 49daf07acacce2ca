"""kombu: the key family of the stock Celery broker on Redis (``redis://``), kombu 4 to 5.7."""

from .family import FAMILY

__all__ = ["FAMILY"]

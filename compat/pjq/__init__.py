"""pjq: the key family of processor-job-queue, all layouts from September 2017 on."""

from .family import FAMILY

__all__ = ["FAMILY"]

"""Where Spark looks for the data source ``ferryman``: it imports every installed module named ``pyspark_*``.

Holds nothing but the name that Spark expects; never imported by ferryman itself.
"""

from ferryman.spark.source import Ferryman as DefaultSource

__all__ = ["DefaultSource"]

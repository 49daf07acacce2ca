"""Speed of ``ferryman://`` beside ``redis://``: ``python -m benchmarks.broker``. One file a measure."""

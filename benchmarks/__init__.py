"""Side-by-side runs of ferryman against kombu's own ``redis://``: speed (``broker``) and survival (``chaos``).

Run from a checkout: ``python -m benchmarks.broker``, ``python -m benchmarks.chaos``. Nothing here is installed with the package.
"""

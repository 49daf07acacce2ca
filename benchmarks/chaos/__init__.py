"""Survival of ``ferryman://`` (or ``redis://``) under kills, restarts and freezes: ``python -m benchmarks.chaos``."""

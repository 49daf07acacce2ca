"""``python -m ferryman.cli`` is the same as ``ferryman``."""

from .main import main

main()

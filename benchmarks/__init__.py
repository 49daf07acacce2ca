"""Side-by-side runs of ferryman against kombu's own ``redis://``: speed (``broker``) and survival (``chaos``).

Run from a checkout: ``python -m benchmarks.broker``, ``python -m benchmarks.chaos``. Nothing here is installed with the package.
"""

import os

# Each command that is measured would compile all its modules anew, as no installed program does.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

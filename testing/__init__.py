"""For tests: of Celery apps with ``pytest_plugin``, which pytest finds by itself; of key families with ``families``, a suite."""

import pytest

# So that a check that fails here says what it has compared, as one in a test does.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("families", "faults", "hostile", "keyspaces")))

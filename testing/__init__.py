"""For tests of key families, this project's own and anybody's: ``families`` is the conformance suite."""

import pytest

# So that a check that fails here says what it has compared, as one in a test does.
pytest.register_assert_rewrite(*(f"{__name__}.{module}" for module in ("families", "faults", "hostile", "keyspaces")))

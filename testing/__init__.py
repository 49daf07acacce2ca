"""For tests of key families, this project's own and anybody's: ``families`` is the conformance suite."""

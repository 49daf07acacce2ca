"""frozen: values that nobody changes, for those that are made by the million.

To a type checker it is attrs' own, so that whoever changes a value is told. At run time nothing stops them: the ``__init__`` that
attrs makes for a frozen class has to go round that class's own refusal for each field, which takes five times as long, and a
migration makes a dozen of these for each job. Called by what holds keys, facts, jobs and records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from attrs import frozen as frozen
else:
    from attrs import define

    def frozen(made=None, *, eq=True, **named):
        """``attrs.frozen``, with the same meaning of equality and hashes."""
        return define(made, eq=eq, unsafe_hash=eq, **named)

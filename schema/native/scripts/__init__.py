"""What runs native queues: atomic Lua scripts, the calls that send them, and what their replies mean.

``lua/`` has one file a transition. What several share stands in its files that begin with an underscore: ``_common.lua`` (the
rules that all obey), ``_queue.lua`` (the keys of a queue), ``_leases.lua`` (how leases begin, are renewed, end and lapse),
``_exchange.lua`` and ``_fanout.lua``.
"""

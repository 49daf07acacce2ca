"""Options of kombu's ``redis://`` that mean nothing to ``ferryman://``, each with the reason, which is said once.

They are accepted, so that the scheme of its URL is all that an application must change. Called by address.py (for URLs) and the
transport's settings (for ``transport_options``).
"""

from __future__ import annotations

from collections.abc import Mapping

_LEASES = "a worker renews the lease on what it holds, and what a dead one held comes back by itself (option lease)"
_HELD_KEYS = "what a worker holds stands in keys of its queue"
_PRIORITIES = "a queue keeps all its priorities, 0 to 255, in one key"
_BROADCASTS = "broadcasts are kept in streams under the prefix, not sent by Pub/Sub"
_CONFIRMED = "every publish returns when the server has the message (option durability)"
_SENTINELS = "only ferryman+sentinel:// asks Sentinels"

SENTINEL_OPTIONS = frozenset({"master_name", "min_other_sentinels", "sentinel_kwargs"})
"""Those that mean something to ``ferryman+sentinel://``."""

IGNORED_OPTIONS: Mapping[str, str] = {
    "ack_emulation": "every message is acked, unless its consumer says no_ack",
    "body_encoding": "bodies are stored as they are",
    "confirm_publish": _CONFIRMED,
    "confirm_timeout": _CONFIRMED,
    "db": "the database stands in the URL",
    "fanout_patterns": "a broadcast reaches every bound queue; a topic exchange chooses by patterns",
    "fanout_prefix": _BROADCASTS,
    "heartbeat": "a connection that is silent is noticed by its blocking reads",
    "insist": "it is an option of AMQP",
    "login_method": "it is an option of AMQP",
    "max_connections": "a connection opens as many sockets as it needs: one to publish, three to consume",
    "polling_interval": "the server wakes whoever waits",
    "predefined_queues": "it is an option of SQS",
    "prefetch_multiplier": "it is a setting of workers, worker_prefetch_multiplier",
    "priority_steps": _PRIORITIES,
    "queue_name_prefix": "it is an option of SQS; the option prefix is the first part of every key",
    "reauth_check_interval": "every new connection asks the credential provider, and open ones go on",
    "region": "it is an option of SQS",
    "retry_on_startup": "it is a setting of Celery, broker_connection_retry_on_startup",
    "retry_on_timeout": "kombu's retry policy repeats a publish, and the server stores it once",
    "retry_policy": "it is an option of result backends; for publishing, Celery has task_publish_retry_policy",
    "sentinel_fanout_compat": _BROADCASTS,
    "sep": _PRIORITIES,
    "unacked_index_key": _HELD_KEYS,
    "unacked_key": _HELD_KEYS,
    "unacked_mutex_expire": _LEASES,
    "unacked_mutex_key": _LEASES,
    "unacked_restore_interval": _LEASES,
    "unacked_restore_limit": _LEASES,
    "unacked_restore_throttle": _LEASES,
    "visibility_timeout": _LEASES,
    **dict.fromkeys(SENTINEL_OPTIONS, _SENTINELS),
}
"""Name -> why it means nothing here."""

"""TLS: what the ``ssl_`` options of a URL, and the dict that Celery calls ``broker_use_ssl``, mean to redis-py.

A security setting never vanishes: each one is honoured or refused by name. Pure; called by address.py, connect.py and the
transport's settings.
"""

from __future__ import annotations

import inspect
import ssl
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import redis

from ..errors import UsageError
from ..text import parse_flag

REQUIREMENTS: Mapping[int, str] = {ssl.CERT_NONE: "none", ssl.CERT_OPTIONAL: "optional", ssl.CERT_REQUIRED: "required"}
VERSIONS: Mapping[int, str] = {
    version: version.name.removeprefix("TLSv").replace("_", ".") for version in ssl.TLSVersion if "TLSv" in version.name
}
"""Python's names of the protocol versions -> 1, 1.1, 1.2, 1.3."""


def _text(value: Any) -> str:
    if not str(value):
        raise ValueError("must not be empty")
    return str(value)


def _requirement(value: Any) -> str:
    """``required``, ``optional`` or ``none``, also as Python's constant or its name; None is none, as for redis-py."""
    word = REQUIREMENTS.get(value, "") if isinstance(value, int) else str(value).removeprefix("CERT_").lower()
    if word not in REQUIREMENTS.values():
        raise ValueError("must be one of required, optional, none")
    return word


def _version(value: Any) -> str:
    word = VERSIONS.get(value, "") if isinstance(value, int) else str(value).removeprefix("TLSv").replace("_", ".")
    if word not in VERSIONS.values():
        raise ValueError("must be one of 1.2, 1.3 (or an older version that this Python still has)")
    return word


def _verify_flags(value: Any) -> str:
    flags = value.split(",") if isinstance(value, str) else value
    names = [str(flag.name if isinstance(flag, ssl.VerifyFlags) else flag).strip() for flag in flags]
    if not names or any(name not in ssl.VerifyFlags.__members__ for name in names):
        raise ValueError("must be names of Python's ssl.VerifyFlags with commas between, such as VERIFY_X509_STRICT")
    return ",".join(names)


OPTIONS: Mapping[str, Callable[[Any], Any]] = {
    "ssl_ca_certs": _text,
    "ssl_ca_path": _text,
    "ssl_ca_data": _text,
    "ssl_certfile": _text,
    "ssl_keyfile": _text,
    "ssl_password": _text,
    "ssl_cert_reqs": _requirement,
    "ssl_check_hostname": parse_flag,
    "ssl_min_version": _version,
    "ssl_ciphers": _text,
    "ssl_include_verify_flags": _verify_flags,
    "ssl_exclude_verify_flags": _verify_flags,
    "ssl_validate_ocsp": parse_flag,
    "ssl_validate_ocsp_stapled": parse_flag,
    "ssl_ocsp_expected_cert": _text,
}
"""What may stand in a URL, with what parses it. The parsed values can be written into a URL again."""

OBJECTS = frozenset({"ssl_ocsp_context"})
"""What redis-py knows beside these, and no URL can hold."""


def from_kombu(given: Any) -> dict[str, Any]:
    """kombu's ``ssl`` (Celery: ``broker_use_ssl``), a dict with or without the prefix ``ssl_``, by our names.

    True says nothing but that there is TLS. Raises UsageError for a key that nobody knows: a security setting never vanishes.
    """
    if given is True:
        return {}
    if not isinstance(given, Mapping):
        raise UsageError(f"ssl (Celery: broker_use_ssl) must be true, false or a dict, not a {type(given).__name__}")
    options = {}
    for key, value in given.items():
        name = f"ssl_{str(key).removeprefix('ssl_')}"
        if name not in OPTIONS and name not in OBJECTS:
            known = ", ".join(sorted({*OPTIONS, *OBJECTS}))
            raise UsageError(f"ssl (Celery: broker_use_ssl) has {key!r}, which ferryman:// does not know; known are: {known}")
        if value is None and name != "ssl_cert_reqs":
            continue
        try:
            options[name] = OPTIONS[name](value) if name in OPTIONS else value
        except ValueError as error:
            raise UsageError(f"ssl (Celery: broker_use_ssl): {key!r} {error}") from None
    return options


def arguments(options: Mapping[str, Any]) -> dict[str, Any]:
    """redis-py's arguments for TLS with these options, complete: its defaults differ from version to version.

    The server's certificate and its host name are verified unless the options say otherwise. Raises UsageError for options
    that contradict each other, and for one that the installed redis-py does not know.
    """
    found = {"ssl_cert_reqs": "required", **options}
    is_verified = found["ssl_cert_reqs"] != "none"
    if found.setdefault("ssl_check_hostname", is_verified) and not is_verified:
        raise UsageError("ssl_check_hostname needs a certificate that is verified: leave ssl_cert_reqs=none out")
    if "ssl_min_version" in found:
        found["ssl_min_version"] = next(
            ssl.TLSVersion(version) for version, word in VERSIONS.items() if word == found["ssl_min_version"]
        )
    for name in ("ssl_include_verify_flags", "ssl_exclude_verify_flags"):
        if name in found:
            found[name] = [ssl.VerifyFlags[flag] for flag in found[name].split(",")]
    for name in sorted(found.keys() - _known_to_redis()):
        raise UsageError(f"{name} needs a newer redis-py than {redis.__version__}")
    return {"ssl": True, **found}


@cache
def _known_to_redis() -> frozenset[str]:
    return frozenset(inspect.signature(redis.SSLConnection.__init__).parameters)

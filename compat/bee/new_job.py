"""New jobs: what ``put`` gives bee of a NewJob, checked, because bee itself checks nothing and breaks later.

A priority that is no number, a delay that is text, a tag that is null: bee's scripts would stop half way at such a job. Called by
``live.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...schema.errors import UsageError
from ...schema.live import NewJob
from .. import lua_json
from .keys import OPTIONS
from .record import tag_name

_NAMES = {
    **dict.fromkeys(("attempts", "retries"), "retries"),
    **dict.fromkeys(("depends", "dependencies"), "dependencies"),
    **{name: name for name in ("retryDelay", "progressiveDelay", "ttl", "dependenciesOnTags", "preferredHostname")},
}
"""Of each option that ``put`` takes, the name of bee's own. The others are none, or more than one."""

_OTHERS = ("backoff", "tags", "parent")


def checked_id(job_id: str) -> str:
    """The id itself. Raises UsageError for one that bee's keys can't be told apart by."""
    if not job_id or ":" in job_id or lua_json.dump_plain(job_id) is None:
        raise UsageError(f"the id {job_id!r} of a bee job must be text without colons, and not empty: leave it out to get one")
    return job_id


def data_of(payload: bytes) -> bytes:
    """A job's data for a payload, both JSON text: the list of its arguments, ``{}`` for none."""
    text = payload.strip()
    if text.startswith(b"["):
        return text
    return b"{}" if text in (b"null", b"{}") else b"[%s]" % text


def tags_of(options: Mapping[str, Any]) -> bytes:
    """The tags as JSON text. Raises UsageError for what can't be a tag."""
    tags = options.get("tags") or ()
    if isinstance(tags, str) or any(tag_name(tag) is None for tag in tags):
        raise UsageError(f"tags of a bee job are a list of texts or numbers, not {tags!r}")
    return _encoded("tags", list(tags))


def options_of(job: NewJob) -> bytes:
    """All nine options as JSON text. Raises UsageError for unknown ones, and for values at which bee would break."""
    options: dict[str, Any] = {**OPTIONS, "delay": _number("delay_ms", max(0, job.delay_ms))}
    if job.priority is not None:
        options["priority"] = _number("priority", job.priority)
    for name, value in job.options.items():
        if name not in _NAMES and name not in _OTHERS:
            known = ", ".join(sorted([*_NAMES, *_OTHERS]))
            raise UsageError(f"bee has no option {name!r} for a job; it has {known}")
        if name == "backoff":
            options.update(_backoff(value))
        elif name in _NAMES and value is not None:
            options[_NAMES[name]] = _option(name, value)
    if options["dependenciesOnTags"] and not job.options.get("tags"):
        raise UsageError("dependenciesOnTags lets a job wait for those that have its tags: give it tags")
    return _encoded("options", options)


def _backoff(value: Any) -> Mapping[str, Any]:
    """Options for a backoff: a delay in ms, or one with a type, of which all but ``fixed`` grow with each retry."""
    if value is None or isinstance(value, bool):
        return {}
    if not isinstance(value, Mapping):
        return {"retryDelay": _number("backoff", value, least=0)}
    delay = value.get("delay", OPTIONS["retryDelay"])
    return {"retryDelay": _number("backoff's delay", delay, least=0), "progressiveDelay": value.get("type", "fixed") != "fixed"}


def _option(name: str, value: Any) -> Any:
    match name:
        case "attempts":
            return _whole(name, value, least=1) - 1
        case "retries":
            return _whole(name, value, least=0)
        case "ttl":
            return _whole(name, value, least=1)
        case "retryDelay":
            return _number(name, value, least=0)
        case "depends" | "dependencies":
            if isinstance(value, str) or not all(isinstance(each, str) for each in value):
                raise UsageError(f"{name} of a bee job is a list of ids, not {value!r}")
            return list(value) or {}
        case "preferredHostname":
            if not isinstance(value, str) and value is not False:
                raise UsageError(f"{name} of a bee job is the name of a host, not {value!r}")
            return value
    return bool(value)


def _whole(name: str, value: Any, least: int) -> int:
    number = _number(name, value, least)
    if number != int(number):
        raise UsageError(f"{name} of a bee job is a whole number, not {value!r}")
    return int(number)


def _number(name: str, value: Any, least: float | None = None) -> int | float:
    number = lua_json.plain_number(value)
    if number is None or (least is not None and number < least):
        raise UsageError(f"{name} of a bee job is a number{'' if least is None else f' from {least} on'}, not {value!r}")
    return number


def _encoded(what: str, value: Any) -> bytes:
    text = lua_json.dump_plain(value)
    if text is None:
        raise UsageError(f"the {what} of a bee job hold what JSON has no form for: {value!r}")
    return text

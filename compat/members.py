"""Members: the top-level members of a JSON object, each with its value and its exact text; and JSON as JavaScript writes it.

For systems that keep a whole job in one JSON document: what is inside must come out, and go back, byte for byte. Never
evaluates anything, and raises nothing but MalformedValue for any bytes. Called by the families whose records are such documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from attrs import field

from ..schema.errors import MalformedValue
from ..schema.frozen import frozen
from ..schema.text import MAX_JSON_DEPTH, dump_at_once, json_encoder, load_at_once, load_json, show


@frozen
class Member:
    """One value. Two of the same text are equal."""

    value: Any = field(eq=False)
    text: bytes
    """Its JSON, without space around it."""

    @classmethod
    def of(cls, value: Any) -> Member:
        """The member with this value, in the text that JavaScript would write."""
        if type(value) is int:
            return cls(value, b"%d" % value)
        return _CONSTANTS[value] if value is None or value is True or value is False else cls(value, stringify(value))

    @classmethod
    def parse(cls, text: bytes) -> Member:
        """The member with this text. Raises MalformedValue if it is not JSON."""
        return cls(load_json(text), text)


Members = Mapping[str, Member]


def split(raw: bytes) -> dict[str, Member]:
    """The members of a JSON object in their order; of two with one name the last counts. Raises MalformedValue for all else."""
    if (members := compact(raw)) is not None:
        return members
    if raw.count(b"[") + raw.count(b"{") > MAX_JSON_DEPTH:
        load_json(raw)  # It refuses what is nested too deep; so many brackets are rare.
    try:
        return _split(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise MalformedValue(f"not a JSON object: {show(str(error))}") from None
    except StopIteration as end:
        raise MalformedValue(f"not a JSON object: no value at character {end.value}") from None


def compact(raw: bytes) -> dict[str, Member] | None:
    """What ``split`` gives, in half the time, for most texts that ``join`` gives back; None for all others."""
    value = load_at_once(raw)
    if type(value) is not dict or dump_at_once(value) != raw:
        return None
    found: dict[str, Member] = {}
    for name, each in value.items():
        if each is None or each is True or each is False:
            found[name] = _CONSTANTS[each]
        else:
            found[name] = Member(each, b"%d" % each if type(each) is int else dump_at_once(each))
    return found


def join(members: Members) -> bytes:
    """The object that has these members, as JavaScript would write it."""
    return b"{" + b",".join(_named(name) + member.text for name, member in members.items()) + b"}"


def stringify(value: Any) -> bytes:
    """Compact JSON in UTF-8, in which only lone surrogates are escaped. Raises MalformedValue for what has no form in JSON."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError):
        raise MalformedValue("a value that has no form in JSON") from None
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError:
        return _LONE.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")


def _named(name: str) -> bytes:
    """What stands before the value of a member. Names from outside may be of any length: only short ones are remembered."""
    return _named_shortly(name) if len(name) <= 32 else stringify(name) + b":"


@lru_cache(maxsize=1024)
def _named_shortly(name: str) -> bytes:
    return stringify(name) + b":"


def _split(text: str) -> dict[str, Member]:
    # A document has dozens of members, and a keyspace millions of documents: nothing is called where no space can be.
    found: dict[str, Member] = {}
    at = _spaces(text, 0)
    if text[at : at + 1] != "{":
        raise ValueError("it does not begin with {")
    at = _spaces(text, at + 1)
    more = text[at : at + 1] != "}"
    while more:
        plain = None
        for plain in iter(_PLAIN_MEMBER.scanner(text, at).match, None):
            name, value_text, comma = plain.groups()
            found[name] = _WORDS.get(value_text) or _plain(value_text)
        if plain is not None:
            at = plain.end()
            if not comma:
                at -= 1
                break
        if text[at : at + 1] != '"':
            raise ValueError(f"no name at character {at}")
        name, at = _SCAN(text, at)
        if text[at : at + 1] != ":":
            at = _spaces(text, at)
            if text[at : at + 1] != ":":
                raise ValueError(f"no value at character {at}")
        start = at + 1
        if text[start : start + 1] in _SPACES:
            start = _spaces(text, start)
        value, at = _SCAN(text, start)
        found[name] = Member(value, text[start:at].encode("utf-8"))
        if text[at : at + 1] in _SPACES:
            at = _spaces(text, at)
        mark = text[at : at + 1]
        if mark == ",":
            at += 1
            if text[at : at + 1] in _SPACES:
                at = _spaces(text, at)
        elif mark == "}":
            more = False
        else:
            raise ValueError(f"neither comma nor end at character {at}")
    if _spaces(text, at + 1) != len(text):
        raise ValueError(f"more than one value, at character {at}")
    return found


def _plain(text: str) -> Member:
    """The member that is such a number or string as most are."""
    return Member(text[1:-1], text.encode("utf-8")) if text[0] == '"' else Member(int(text), text.encode("ascii"))


def _spaces(text: str, at: int) -> int:
    """Where the next character that is no space stands."""
    found = _SOME_SPACES.match(text, at)
    return at if found is None else found.end()


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_SPACES = frozenset(" \t\n\r")
_SOME_SPACES = re.compile(r"[ \t\n\r]+")
_PLAIN_MEMBER: Any = re.compile(
    r'"([^"\\\x00-\x1f]*)":(null|true|false|-?[1-9][0-9]{0,17}|0(?=[,}])|"[^"\\\x00-\x1f]*")(?:(,)[ \t\n\r]*|\})'
)
"""A whole member with a short value, as nearly all are, and what follows it: one call instead of six."""
_LONE = re.compile("[\ud800-\udfff]")
_encode = json_encoder(ensure_ascii=False)
_SCAN: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder(parse_constant=_refuse_constant))["scan_once"]
"""The value that begins at a position, and where it ends; ``raw_decode`` calls it for each, and takes as long again."""
_CONSTANTS = {value: Member(value, stringify(value)) for value in (None, True, False)}
_WORDS = {member.text.decode(): member for member in _CONSTANTS.values()}

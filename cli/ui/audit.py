"""Audit: the rules of the family on every job of the keyspace, run on demand in the background. ``/audit``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from ..audit_page import repair_command
from . import scans
from .background import Look
from .notices import Notice
from .view import View


def page(view: View) -> Response:
    """What the last audit has found."""
    return view.page("audit", look=_look(view).seen(), repair=lambda rule: repair_command(view.address, rule))


def started(view: View) -> Response:
    """Starts one."""
    look = _look(view)
    if not look.is_running and not view.shared.background.start(look):
        return view.back(view.link("/audit"), Notice("warning", "Too much is being read already: try again later."))
    look.wait(1.0)
    return view.back(view.link("/audit"))


def stopped(view: View) -> Response:
    """Stops the one under way."""
    _look(view).wants_end.set()
    _look(view).wait(2.0)
    return view.back(view.link("/audit"))


def _look(view: View) -> Look[Mapping[str, Any]]:
    address = view.address
    return view.shared.background.look(("audit", *view.keyspace), lambda look: scans.audit(address, look))

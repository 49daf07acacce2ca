"""The log of actions: who has done what, and what came of it. ``/log``."""

from __future__ import annotations

from starlette.responses import Response

from .view import View


def page(view: View) -> Response:
    """The last actions."""
    log = view.shared.actions
    return view.page("actionlog", records=log.last(), file=log.file.path if log.file else None)

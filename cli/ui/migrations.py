"""Migrations: what the journals in the database say of migrations to it, running and finished. ``/migrations``."""

from __future__ import annotations

from starlette.responses import Response

from ...operations.journals import journals
from .view import View

MAX_AGE_S = 15.0


def page(view: View) -> Response:
    """The page."""
    address = view.settings.address
    look = view.shared.background.fresh(("migrations",), lambda _look: journals(address), MAX_AGE_S)
    return view.page("migrations", look=look)

"""``ferryman ui``: the web page. Server-rendered HTML over the same reads and actions as the command line.

    serve.py        the command and its options          settings.py   what was asked for
    app.py          routes                               guard.py      who may ask what: hosts, roles, headers
    view.py         one request, and its keyspace        render.py     templates, and how any text from Redis becomes harmless
    background.py   what takes longer than a page        failures.py   errors as pages
    live.py         server-sent events                   charts.py     SVG
    sessions.py     cookies, form tokens, log-out

Each page is a module of its own, with a template of the same name. Called by ``cli/main.py``.
"""

from __future__ import annotations

from .serve import command

__all__ = ["command"]

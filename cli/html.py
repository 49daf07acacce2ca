"""HTML: the few elements that reports are made of, as text that is always escaped, and the page around them.

A page stands alone: its style is in it, it fetches nothing, and its policy forbids it to run or load anything, so that not even a
mistake here could let a hostile job id do more than look odd. Pure. Called by the pages (``audit_page.py``, ``verify_page.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from html import escape

from attrs import frozen

from ..schema.text import show

LONGEST = 2_000
"""Characters of one text."""


@frozen
class Html:
    """A piece of a page. Only functions of this module make one; any other text is escaped when it becomes part of it."""

    source: str


Content = Html | str | int | float | None
"""What may stand in an element; None is nothing."""


def element(name: str, *content: Content, **attributes: str) -> Html:
    """An element; a name with ``_`` at its end stands for one that Python keeps for itself (``class_``)."""
    rendered = "".join(f' {key.rstrip("_")}="{_safe(value)}"' for key, value in attributes.items())
    return Html(f"<{name}{rendered}>{''.join(map(_source, content))}</{name}>")


def joined(pieces: Iterable[Content]) -> Html:
    """Pieces one after the other."""
    return Html("".join(map(_source, pieces)))


def table(
    columns: Sequence[str], rows: Iterable[Sequence[Content]], *, right: Collection[str] = (), total: Sequence[Content] = ()
) -> Html:
    """A table with a heading. Columns named in ``right`` are aligned as numbers are; ``total``: the last row, if there is one."""
    sides = ["number" if name in right else "text" for name in columns]

    def line(cell: str, row: Sequence[Content]) -> Html:
        return element("tr", *(element(cell, each, class_=side) for each, side in zip(row, sides, strict=True)))

    foot = element("tfoot", line("td", total)) if total else None
    return element("table", element("thead", line("th", columns)), element("tbody", *(line("td", row) for row in rows)), foot)


def terms(facts: Iterable[tuple[str, Content]]) -> Html:
    """A list of names, each with what it stands for."""
    return element("dl", *(joined([element("dt", name), element("dd", value)]) for name, value in facts))


def bar(share: float) -> Html:
    """A bar for a share from 0 to 1."""
    return element("span", element("span", class_="filled", style=f"width:{100 * max(0.0, min(share, 1.0)):.1f}%"), class_="bar")


def document(title: str, *content: Content) -> str:
    """The whole page."""
    head = (
        '<meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{_safe(title)}</title><style>{STYLE}</style>"
    )
    body = element("body", element("main", *content))
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>{body.source}</html>\n'


def _source(content: Content) -> str:
    if content is None:
        return ""
    return content.source if isinstance(content, Html) else _safe(f"{content:,}" if isinstance(content, int) else str(content))


def _safe(text: str) -> str:
    """The text without control characters or halves of letters, each character standing for itself."""
    return escape(show(text, LONGEST), quote=True)


STYLE = """
:root {
  color-scheme: light;
  --ink: #1d2329; --faint: #66707a; --line: #d8dee4; --ground: #f3f5f7; --filled: #4f7fb0;
  --error: #b3261e; --warning: #8a5a00; --info: #0b5cad; --fine: #1a7f37;
}
* { box-sizing: border-box; }
body { margin: 0; color: var(--ink); background: #fff; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 2.5rem 1.5rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1rem; margin: 1.6rem 0 .2rem; }
p { margin: .35rem 0; max-width: 48rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1.2rem; margin: .8rem 0; }
dd { margin: 0; overflow-wrap: anywhere; }
code { font: .88em ui-monospace, monospace; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; margin: .6rem 0; font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .28rem .9rem .28rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--faint); white-space: nowrap; }
td { overflow-wrap: anywhere; }
td code { display: inline-block; }
td code, td:first-child { min-width: 6rem; }
tfoot td { font-weight: 600; border-bottom: 0; }
section { break-inside: avoid-page; }
.faint, dt { color: var(--faint); }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.command { display: block; background: var(--ground); border: 1px solid var(--line); border-radius: .3rem; padding: .5rem .7rem; }
.badge { display: inline-block; border: 1px solid currentColor; border-radius: .8rem; padding: 0 .6rem; font-size: .8rem; }
.error { color: var(--error); }
.warning { color: var(--warning); }
.info { color: var(--info); }
.fine { color: var(--fine); }
.bar { display: inline-block; width: 8rem; height: .7rem; background: var(--ground); border-radius: .2rem; overflow: hidden; }
.filled { display: block; height: 100%; background: var(--filled); print-color-adjust: exact; }
@media print {
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  thead { display: table-header-group; }
  h2, h3 { break-after: avoid; }
}
"""

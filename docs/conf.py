"""The documentation site: ``sphinx-build -W -c docs . build/site``. Pages are the same Markdown files that a forge shows.

The source folder is the root of the repository, so that links to code and to README mean the same in both places.
"""

from importlib.metadata import version as _version

project = "ferryman"
author = "the ferryman authors"
release = version = _version("ferryman")

extensions = ["myst_parser", "notfound.extension", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_click"]
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**.md"]
root_doc = "docs/index"

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]  # a page may begin with the level that a forge shows best

html_theme = "furo"
html_title = "ferryman"
html_show_sphinx = False
# Arrow keys scroll code that is wider than the screen: they must not turn the page.
html_theme_options = {"navigation_with_keys": False, "top_of_page_buttons": []}
html_static_path = ["_static"]
html_css_files = ["narrow.css"]
templates_path = ["_templates"]
html_additional_pages = {"index": "redirect.html"}

# 404.html, for old bookmarks: servers show it at any address, so its own links begin at the root of the site.
notfound_urls_prefix = "/"
notfound_context = {
    "title": "No such page",
    "body": """
<h1>No such page</h1>
<p>It has moved, or never was. Where to look:</p>
<ul>
<li><a href="/docs/index.html">the first page</a>, which leads to all others</li>
<li><a href="/search.html">search</a>, and the <a href="/genindex.html">index</a> of what programs can import</li>
<li><a href="/docs/commands.html">commands and their options</a></li>
<li><a href="/docs/troubleshooting.html">troubleshooting</a>, by what you see</li>
<li><a href="/docs/upgrading.html">upgrading</a>, if a name of an earlier version has led you here</li>
</ul>
""",
}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}

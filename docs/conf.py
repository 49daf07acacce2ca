"""The documentation site: ``sphinx-build -W -c docs . build/site``. Pages are the same Markdown files that a forge shows.

The source folder is the root of the repository, so that links to code and to README mean the same in both places.
"""

from importlib.metadata import version as _version

project = "ferryman"
author = "the ferryman authors"
release = version = _version("ferryman")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode", "sphinx_click"]
include_patterns = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "docs/**.md"]
root_doc = "docs/index"

myst_heading_anchors = 4
myst_enable_extensions = ["attrs_inline"]
suppress_warnings = ["myst.header"]  # a page may begin with the level that a forge shows best

html_theme = "furo"
html_title = "ferryman"
html_show_sphinx = False
html_theme_options = {"navigation_with_keys": True}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "undoc-members": False}

"""The documentation site is built without a warning: every page is in its contents, every link and docstring is right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from .pages import ROOT


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "site" / "docs" / "api.html").read_text(encoding="utf-8")
    assert "assert_enqueued" in api
    first = (tmp_path / "site" / "docs" / "index.html").read_text(encoding="utf-8")
    # Nothing is fetched from any other host.
    assert 'src="http' not in first
    assert 'rel="stylesheet" type="text/css" href="http' not in first

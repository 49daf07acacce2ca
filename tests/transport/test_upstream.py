"""What kombu tests of every transport, run on ours from kombu's own source distribution."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from ..support import sdists
from ..support.servers import installed_servers

SUITE = Path(__file__).parents[1] / "support" / "kombu_suite.py"
SECONDS = 240


def test_everything_that_kombu_asks_of_any_transport_holds(pytestconfig, tmp_path):
    source = sdists.unpacked("kombu", pytestconfig.cache, tmp_path)
    shutil.copy(SUITE, source / "t" / "integration" / "test_ferryman.py")
    with installed_servers()[0].start(tmp_path) as server:
        environment = {**os.environ, "FERRYMAN_TEST_BROKER": server.url()}
        run = sdists.run_tests(
            source, "-c", os.devnull, "t/integration/test_ferryman.py", environment=environment, seconds=SECONDS
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " passed" in run.stdout

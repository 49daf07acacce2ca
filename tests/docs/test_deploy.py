"""The files for containers, Kubernetes and systemd are valid, and the commands in them can be typed.

No container is built: that needs an engine. What can be checked without one: hadolint, the schemas of Kubernetes, systemd's own
verifier, and the command lines of ferryman and Celery.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from ferryman.cli.main import main
from ferryman.schema.connection.address import Address

from .pages import ROOT

FOLDER = ROOT / "examples" / "deploy"
CONTAINERFILES = sorted(FOLDER.glob("Containerfile*"))
MANIFESTS = sorted((FOLDER / "kubernetes").glob("*.yaml"))
UNITS = sorted((FOLDER / "systemd").glob("*.service"))
RESOURCES_OF_OTHERS = {"ScaledObject"}
"""Kinds that Kubernetes itself has no schema for."""


def program(name: str) -> str:
    """A program that a package of the environment has brought. Tests may run in an environment that stands on another one."""
    folders = [
        Path(sys.executable).parent,
        *(Path(each).parents[2] / "bin" for each in sys.path if each.endswith("site-packages")),
    ]
    found = shutil.which(name, path=":".join(map(str, folders)))
    assert found is not None, f"{name} is not installed: pip install -e '.[dev]'"
    return found


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def documents(path: Path) -> list[Any]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def check_ferryman(arguments: list[str]) -> None:
    """That this is a command line of ferryman, and its URL one that can be."""
    name, *rest = arguments
    command = main.get_command(click.Context(main), name)
    assert command is not None
    given, _, _ = command.make_parser(click.Context(command, resilient_parsing=True)).parse_args(rest)
    Address.parse(given["url"])


@pytest.mark.parametrize("path", CONTAINERFILES, ids=lambda path: path.name)
def test_a_containerfile_is_sound(path: Path) -> None:
    run(program("hadolint"), "--failure-threshold", "info", str(path))


def ours(path: Path) -> Iterator[Any]:
    yield from (each for each in documents(path) if each["kind"] not in RESOURCES_OF_OTHERS)


@pytest.mark.parametrize("path", [path for path in MANIFESTS if any(ours(path))], ids=lambda path: path.name)
def test_a_manifest_fits_the_schemas_of_kubernetes(path: Path) -> None:
    assert run(program("kubernetes-validate"), "--strict", str(path)).count("passed") == len(documents(path))


def test_what_is_scaled_is_what_is_deployed_and_asked_where_it_listens() -> None:
    found = {(each["kind"], each["metadata"]["name"]): each for path in MANIFESTS for each in documents(path)}
    scaled = found["ScaledObject", "shop-worker"]["spec"]
    assert ("Deployment", scaled["scaleTargetRef"]["name"]) in found
    url = scaled["triggers"][0]["metadata"]["url"]
    service = found["Service", "ferryman-metrics"]
    assert url.startswith(f"http://{service['metadata']['name']}:{service['spec']['ports'][0]['port']}/backlog")
    labels = found["Deployment", "ferryman-metrics"]["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def containers() -> Iterator[tuple[str, list[str], dict[str, str]]]:
    """Name, command and environment of each container of ours, of Compose and of Kubernetes."""
    for name, service in documents(FOLDER / "compose.yaml")[0]["services"].items():
        if service.get("image", "").startswith("shop"):
            yield f"compose {name}", service["command"], service["environment"]
    for path in MANIFESTS:
        for each in documents(path):
            for container in each["spec"].get("template", {}).get("spec", {}).get("containers", []):
                environment = {variable["name"]: variable["value"] for variable in container.get("env", [])}
                yield f"kubernetes {container['name']}", container["command"], environment


@pytest.mark.parametrize(("command", "environment"), [each[1:] for each in containers()], ids=[each[0] for each in containers()])
def test_a_container_runs_a_command_that_exists(command: list[str], environment: dict[str, str]) -> None:
    assert command[0] in ("ferryman", "celery")
    if command[0] == "ferryman":
        check_ferryman(command[1:])
    else:
        assert Address.parse(environment["BROKER_URL"]).options["password_file"].startswith("/run/secrets/")


def test_the_composed_secrets_are_all_declared_and_in_no_file() -> None:
    composed = documents(FOLDER / "compose.yaml")[0]
    used = {secret for service in composed["services"].values() for secret in service.get("secrets", [])}
    assert used == set(composed["secrets"])
    assert not any((FOLDER / secret["file"]).exists() for secret in composed["secrets"].values())


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_a_unit_is_one_that_systemd_takes(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("ExecStart=")]
    executable, *arguments = line.removeprefix("ExecStart=").split()
    if executable.endswith("/ferryman"):
        check_ferryman(arguments)
    unit = tmp_path / path.name
    unit.write_text(text.replace(executable, "/bin/true"))
    assert run("systemd-analyze", "verify", str(unit)) == ""

"""No module imports, not even for its types or inside a function, another that imports it, directly or by way of others.

A reader can so begin anywhere, and finds below a module only what it stands on.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("schema", "compat", "transport", "migrations", "spark", "operations", "cli", "testing")


def modules() -> dict[str, Path]:
    """The path of each module, by its name."""
    found = {}
    for part in PARTS:
        for path in sorted((ROOT / part).rglob("*.py")):
            names = path.relative_to(ROOT).with_suffix("").parts
            found[".".join(["ferryman", *(names[:-1] if names[-1] == "__init__" else names)])] = path
    return found


def imported(name: str, path: Path, known: Mapping[str, Path]) -> Iterator[str]:
    """The modules of ours that a module names in any import statement."""
    package = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                both = (f"{module}.{alias.name}", module)
                yield from [each for each in both if each in known and each != name][:1]


def cycles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules of which each can be reached from each other one."""
    reached = {name: _reachable(graph, name) for name in graph}
    groups = {frozenset(each for each in reached[name] if name in reached[each]) for name in graph}
    return sorted(sorted(group) for group in groups if group)


def _reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    left = [start]
    while left:
        new = graph[left.pop()] - seen
        seen |= new
        left += new
    return seen


def import_cycles() -> list[list[str]]:
    """Those of the whole tree."""
    known = modules()
    return cycles({name: set(imported(name, path, known)) for name, path in known.items()})


def test_no_module_imports_one_that_imports_it():
    assert import_cycles() == []


def test_a_cycle_is_found_however_long_it_is():
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a", "e"}, "e": {"e"}}
    assert cycles(graph) == [["a", "b", "c"], ["e"]]


def test_imports_for_types_and_inside_functions_count(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("if TYPE_CHECKING:\n    from .b import B\n\ndef f():\n    from .. import c\n    import z.d, json\n")
    known = dict.fromkeys(["x.y.a", "x.y.b", "x.c", "z.d"], path)
    assert set(imported("x.y.a", path, known)) == {"x.y.b", "x.c", "z.d"}


if __name__ == "__main__":
    for cycle in import_cycles():
        print(len(cycle), *cycle)

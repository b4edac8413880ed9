"""No source of the program turns data into code, or starts another program."""

import ast
from collections.abc import Iterator

from tests.tools import ROOT

BUILT_IN = {"eval", "exec", "compile", "__import__"}
OF_MODULE = {
    "os": {"system", "popen", "fork", "execv", "execve", "execvp", "posix_spawn", "spawnv"},
    "yaml": {"load", "load_all", "unsafe_load", "full_load"},
}
MODULES = {"pickle", "marshal", "shelve", "subprocess", "pty", "multiprocessing"}


def _objections(tree: ast.AST) -> Iterator[int]:
    """Yield the lines that evaluate, unpickle or start something."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in BUILT_IN:
                yield node.lineno
            case ast.Call(func=ast.Attribute(value=ast.Name(id=module), attr=name)):
                if name in OF_MODULE.get(module, ()):
                    yield node.lineno
            case ast.Import(names=names) if MODULES & {each.name for each in names}:
                yield node.lineno
            case ast.ImportFrom(module=module) if module in MODULES:
                yield node.lineno


def test_nothing_is_evaluated_unpickled_or_started() -> None:
    sources = [path for part in ("exporter", "podresources") for path in (ROOT / part).rglob("*.py")]
    found = [f"{path}:{line}" for path in sources for line in _objections(ast.parse(path.read_text()))]

    assert len(sources) > 250
    assert found == []


def test_each_forbidden_call_and_import_is_noticed() -> None:
    bad = "import pickle\nfrom subprocess import run\neval(text)\nos.system(text)\nyaml.load(text)\n"

    assert sorted(_objections(ast.parse(bad))) == [1, 2, 3, 4, 5]

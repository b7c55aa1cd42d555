"""The shape of the package.

Which names are public, which module may import which, and what loads torch.
"""

import ast
import builtins
import dis
import importlib
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from types import CodeType

import heed

SOURCE = Path(heed.__file__).parent

# Data flows one way: a module imports only from its own layer's package or from the left.
LAYERS = [
    "errors",
    "randomness",
    "settings",
    "text",
    "metrics",
    "intervals",
    "store",
    "progress",
    "recommendation",
    "algebra",
    "data",
    "models",
    "training",
    "methods",
    "claims",
    "audit",
    "rank",
    "papers",
    "report",
    "catalogue",
    "cli",
]


# A value shows itself: these methods hand it to `report`, which alone knows how things look.
SHOWS = ("_repr_html_", "__rich_console__", "answer")


def statements(tree: ast.AST, typing: bool = True) -> Iterator[ast.AST]:
    """All of a module, but for the methods by which a value shows itself; without `typing`, also
    without what only type checkers read.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef) and node.name in SHOWS:
            continue
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not typing:
            continue
        yield node
        yield from statements(node, typing)


def imported(path: Path) -> set[str]:
    """Parts of heed that a file imports, also inside functions."""
    found = set()
    for node in statements(ast.parse(path.read_text(encoding="utf8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path} imports relatively"
            names = (
                [node.module]
                if node.module != "heed"
                else [f"heed.{alias.name}" for alias in node.names]
            )
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("heed.")}
    return found


def layer(path: Path) -> str:
    part = path.relative_to(SOURCE).parts[0]
    return part.removesuffix(".py")


def global_names(code: CodeType) -> Iterator[str]:
    """Names that code looks up in its module, with all functions and classes in it."""
    yield from (i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from global_names(constant)


def test_every_name_is_defined() -> None:
    """Which linters cannot tell: to them, shapes in strings are names, too."""
    wrong = []
    for path in SOURCE.rglob("*.py"):
        name = ".".join(("heed", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(
            ".__init__"
        )
        if name.endswith("__main__"):
            continue
        known = vars(importlib.import_module(name)) | vars(builtins)
        code = compile(path.read_text(encoding="utf8"), str(path), "exec")
        wrong += [f"{name}: {missing}" for missing in sorted(set(global_names(code)) - set(known))]
    assert not wrong


def test_modules_import_only_from_their_left() -> None:
    wrong = []
    for path in SOURCE.rglob("*.py"):
        here = layer(path)
        if here in ("__init__", "__main__"):
            continue
        assert here in LAYERS, f"{here} has no place in the order"
        wrong += [
            f"{path.relative_to(SOURCE)} imports {name}"
            for name in imported(path)
            if LAYERS.index(name) > LAYERS.index(here)
        ]
    assert not wrong


def modules() -> dict[str, Path]:
    """All modules of heed by name; a package by that of its folder."""
    found = {}
    for path in SOURCE.rglob("*.py"):
        parts = ("heed", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def edges(path: Path, known: set[str]) -> set[str]:
    """The modules that a module imports when it runs, not what only type checkers read."""
    names: set[str] = set()
    for node in statements(ast.parse(path.read_text(encoding="utf8")), typing=False):
        if isinstance(node, ast.ImportFrom) and node.module:
            parts = {f"{node.module}.{alias.name}" for alias in node.names}
            names |= parts & known or {node.module}
    return names & known


def test_modules_inside_packages_import_in_one_direction_too() -> None:
    """No module reaches itself: there is an order in which each imports only from its left."""
    known = modules()
    waiting = {name: edges(path, set(known)) - {name} for name, path in known.items()}
    while free := {name for name, needs in waiting.items() if not needs & set(waiting)}:
        waiting = {name: needs for name, needs in waiting.items() if name not in free}
    circles = {name: sorted(needs & set(waiting)) for name, needs in waiting.items()}
    assert not circles


def test_report_draws_without_models() -> None:
    assert not [path for path in (SOURCE / "report").rglob("*.py") if "models" in imported(path)]


def test_public_names() -> None:
    assert sorted(heed.__all__) == [
        "Audit",
        "Classifier",
        "Comparison",
        "Document",
        "Explanation",
        "Function",
        "HeedError",
        "Imported",
        "Method",
        "Plan",
        "Ranking",
        "Tokens",
        "Trace",
        "Training",
        "audit",
        "compare",
        "data",
        "diff",
        "entailed",
        "explain",
        "load",
        "load_explanations",
        "plan",
        "prompted",
        "rank",
        "save_explanations",
        "show_progress",
        "tasks",
    ]
    assert all(hasattr(heed, name) for name in heed.__all__)
    assert heed.__version__ == metadata.version("heed")
    assert callable(heed.explain) and callable(
        heed.audit
    )  # functions, though packages bear the same names


def test_listing_and_refusing_do_not_load_torch() -> None:
    script = (
        "import sys, heed.cli\n"
        "from heed.errors import HeedError\n"
        "for words in (['list'], ['--help'], ['cite'],\n"
        "              ['explain', 'x', '--method', 'nope'], ['explain', ' '],\n"
        "              ['audit', '--claim', 'nope'],\n"
        "              ['explain', 'x', '--model', 'no-such-folder']):\n"
        "    try:\n"
        "        heed.cli.app(words)\n"
        "    except (HeedError, SystemExit):\n"
        "        pass\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr

"""The sizes and the few words that the architecture caps, for every file of the tree."""

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = sorted((ROOT / "s3mount").rglob("*.py"))
TESTS = sorted(
    [*(ROOT / "tests").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").glob("*.py")]
)

MAX_LINES = 250
MAX_TEST_LINES = 400
#: Where the design gives another number; errors.py by docs/decisions/0007.
MAX_LINES_OF = {"errors.py": 240, "units.py": 90, "config.py": 200, "fs/filesystem.py": 350}
MAX_FUNCTION_LINES = 60
MAX_FUNCTION_LINES_P95 = 40
MAX_PUBLIC_METHODS = 15
#: The kernel and the file system have as many verbs as they have.
MANY_VERBS = {"Operations", "WritingOperations", "S3FileSystem"}
#: fuse/operations translates and never decides.
MAX_HANDLER_STATEMENTS = 6
#: Smaller ones are counts as often as sizes: connections, bytes of a key.
BARE_SIZES = {1 << bits for bits in range(17, 51)}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_there_is_something_to_check() -> None:
    """The globs find the package and the tests, so that the other checks cannot pass on nothing."""
    assert len(PACKAGE) > 40
    assert len(TESTS) > 20


def test_capped_files_exist() -> None:
    """A cap of its own belongs to a file that is there."""
    assert [name for name in MAX_LINES_OF if not (ROOT / "s3mount" / name).is_file()] == []


def too_long(paths: list[Path], cap_of: Callable[[Path], int]) -> list[str]:
    counts = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    return [f"{name_of(path)} has {n} lines of {cap_of(path)}" for path, n in counts.items() if n > cap_of(path)]


def test_a_module_is_one_noun() -> None:
    """No module has more lines than its cap."""
    assert too_long(PACKAGE, lambda path: MAX_LINES_OF.get(str(path.relative_to(ROOT / "s3mount")), MAX_LINES)) == []


def test_a_test_file_is_one_subject() -> None:
    """No file of tests, benchmarks or examples has more lines than the cap."""
    assert too_long(TESTS, lambda _: MAX_TEST_LINES) == []


def test_functions_are_short() -> None:
    """No function anywhere has more lines than the cap."""
    long = [
        f"{name_of(path)}: {node.name} has {length(node)} lines"
        for path in [*PACKAGE, *TESTS]
        for node in functions(path)
        if length(node) > MAX_FUNCTION_LINES
    ]
    assert long == []


def test_most_functions_are_shorter() -> None:
    """95 of 100 functions of the package keep to the smaller cap."""
    lengths = sorted(length(node) for path in PACKAGE for node in functions(path))
    assert lengths[len(lengths) * 95 // 100] <= MAX_FUNCTION_LINES_P95


def test_classes_are_small() -> None:
    """No class has more public methods than the cap, those with the kernel's verbs excepted."""
    crowded = []
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and node.name not in MANY_VERBS:
                methods = {
                    each.name
                    for each in node.body
                    if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) and not each.name.startswith("_")
                }
                if len(methods) > MAX_PUBLIC_METHODS:
                    crowded.append(f"{name_of(path)}: {node.name} has {len(methods)}")
    assert crowded == []


def test_handlers_translate() -> None:
    """A FUSE handler has at most six statements: unpack, await one call, convert."""
    path = ROOT / "s3mount/fuse/operations.py"
    handlers = [node for node in functions(path) if isinstance(node, ast.AsyncFunctionDef)]
    assert len(handlers) >= 10
    counts = {node.name: sum(isinstance(each, ast.stmt) for each in ast.walk(node)) - 1 for node in handlers}
    assert {name: count for name, count in counts.items() if count > MAX_HANDLER_STATEMENTS} == {}


def test_nobody_catches_everything() -> None:
    """No `except Exception` and no bare one: fuse.boundary's guard is the one catch-all, and it is no `except`."""
    broad = []
    for path in PACKAGE:
        source = path.read_text(encoding="utf-8")
        assert "BLE001" not in source, path
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ExceptHandler):
                caught = ast.unparse(node.type) if node.type else "everything"
                if re.search(r"\b(everything|Exception|BaseException)\b", caught):
                    broad.append(f"{name_of(path)}: line {node.lineno} catches {caught}")
    assert broad == []


def test_who_keeps_whatever_comes() -> None:
    """What a captured outcome keeps, of any kind, is for whoever waits for it: only these hand one over."""
    waited_for = {"cache/threads", "daemon/control", "fs/flight", "fs/pages", "store/racing"}
    keeping = {name_of(path) for path in PACKAGE if re.search(r"\ba?capture\(", path.read_text(encoding="utf-8"))}
    assert keeping == {f"s3mount/{each}.py" for each in waited_for}


def test_asyncio_is_nowhere() -> None:
    """There is one trio loop and no bridge to another."""
    bridges = []
    for path in PACKAGE:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if {name.partition(".")[0] for name in names} & {"asyncio", "trio_asyncio"}:
                bridges.append(f"{name_of(path)}: line {node.lineno}")
    assert bridges == []


def test_sizes_have_units() -> None:
    """A size is written `8 * MIB`, so no power of two of 2^17 or more, and no product with 1024, is spelled out."""
    bare = []
    for path in PACKAGE:
        if path.name == "units.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and node.value in BARE_SIZES:
                bare.append(f"{name_of(path)}: line {node.lineno}: {node.value}")
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
                factors = [each.value for each in (node.left, node.right) if isinstance(each, ast.Constant)]
                if 1024 in factors:
                    bare.append(f"{name_of(path)}: line {node.lineno}: a product with 1024")
    assert bare == []

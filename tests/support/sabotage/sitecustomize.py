"""What a daemon of a test imports first, by its PYTHONPATH: it then dies, or spins, where the test says.

SABOTAGE_KEY: a read of the object with this key aborts the process, as a fault in C code does.
SABOTAGE_SPIN: while this file exists, the next read removes it and never returns.
"""

import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

_MODULE = "s3mount.fs.reader"


class _Hook(importlib.abc.MetaPathFinder):
    """Finds one module, and changes it when it is loaded."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_sabotage(module: ModuleType) -> None:
                load(module)
                _sabotage(module)

            spec.loader.exec_module = load_and_sabotage  # type: ignore[method-assign]
        return spec


def _sabotage(module: Any) -> None:
    key, spin = os.environ.get("SABOTAGE_KEY"), os.environ.get("SABOTAGE_SPIN")
    read = module.FileReader.read

    async def sabotaged(reader: Any, *span: Any) -> Any:
        if reader.inode.key == key:
            os.abort()
        if spin:
            _spin_if(spin)
        return await read(reader, *span)

    module.FileReader.read = sabotaged


def _spin_if(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
    while True:
        pass


sys.meta_path.insert(0, _Hook())

"""Python files with a query's code, imported as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def module_of_file(path: Path, **names: object) -> ModuleType:
    """Run a Python file and return it as a module.

    Args:
        path: the file.
        names: what it finds defined.

    Raises:
        FileNotFoundError: there is no such file.
        Exception: what its code raises.
    """
    # Under a name of its own, so that a file json.py does not become the json of all other modules.
    name = f"code_of_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise FileNotFoundError(f"there is no such file: {path}")
    # The modules beside it come last, for the same reason.
    if (beside := str(path.parent.absolute())) not in sys.path:
        sys.path.append(beside)
    module = importlib.util.module_from_spec(spec)
    vars(module).update(names)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module

"""Check the types of everything: ``python scripts/typecheck.py``.

The build maps folders of other names into the package ``streamstate``; mypy knows no such mapping and does not
follow the import hook of an editable install. So the package is laid out once more, in links, and checked there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TREE = ROOT / "build" / "typecheck"
OTHERS = ("benchmarks", "scripts", "tests")


def folders() -> dict[str, Path]:
    """Each package's name and the folder it is built from, as pyproject.toml maps them."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]
    mapping: dict[str, Path] = {}
    for package in sorted(settings["packages"]):
        parent, _, name = package.rpartition(".")
        mapped = settings["package-dir"].get(package)
        mapping[package] = ROOT / mapped if mapped else mapping[parent] / name
    return mapping


def lay_out(mapping: dict[str, Path], tree: Path) -> None:
    """Link every source into ``tree`` under its import name."""
    wanted = {
        tree.joinpath(*package.split("."), source.name): source
        for package, folder in mapping.items()
        for kind in (
            "*.py",
            "*.pyi",
            "py.typed",
            "*.js",
            "*.css",
        )  # with what the page runs, so that the tree can be imported
        for source in folder.glob(kind)
    }
    for link in {path for path in tree.rglob("*") if path.is_symlink()} - wanted.keys():
        link.unlink()  # its source was deleted or renamed
    for link, source in wanted.items():
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(source)


def with_own_paths(report: str, mapping: dict[str, Path], tree: Path) -> str:
    """Mypy's report with the paths that an editor can open."""
    for package, folder in sorted(mapping.items(), key=lambda item: -len(item[0])):
        linked = os.path.relpath(tree.joinpath(*package.split(".")), ROOT)
        report = report.replace(f"{linked}{os.sep}", f"{os.path.relpath(folder, ROOT)}{os.sep}")
    return report


def bases() -> list[Path]:
    """Where imports start: at the package, at the repository, and, as pytest has it, beside each test."""
    beside = {test.parent for test in (ROOT / "tests").rglob("*.py") if not (test.parent / "__init__.py").exists()}
    return [TREE, *sorted(beside), ROOT]


def main(arguments: list[str]) -> int:
    """Run mypy over the package, the tests, the benchmarks and the scripts; arguments are passed on to it."""
    mapping = folders()
    lay_out(mapping, TREE)
    checked = [os.path.relpath(TREE / "streamstate", ROOT)]
    checked += [name for name in OTHERS if any((ROOT / name).rglob("*.py"))]
    result = subprocess.run(
        [sys.executable, "-m", "mypy", *arguments, *checked],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": os.pathsep.join(map(str, bases()))},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    sys.stdout.write(with_own_paths(result.stdout, mapping, TREE))
    return result.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

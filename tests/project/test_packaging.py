"""A wheel, ``pip install .`` and ``pip install -e .`` each give a working ``streamstate``.

Each goes into an environment of its own, which borrows everything but streamstate from the one the tests run in.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.message import Message
from email.parser import Parser
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamstate import java

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
FOLDERS = {
    "kernel_ext": "streamstate",
    "snapshots": "streamstate/snapshots",
    "state_inspect": "streamstate/state_inspect",
    "widgets": "streamstate/widgets",
    "tutorials": "streamstate/tutorials",
}


def sources(*suffixes: str) -> list[Path]:
    """The package's files with these suffixes, relative to the repository."""
    files = (path for folder in FOLDERS for suffix in suffixes for path in (ROOT / folder).rglob(f"*{suffix}"))
    return sorted(path.relative_to(ROOT) for path in files if not {".ipynb_checkpoints"} & set(path.parts))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command away from the repository; its output, shown where it fails."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment |= {"IPYTHONDIR": str(cwd / ".ipython"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built from, so that building leaves nothing in the repository."""
    copy = tmp_path_factory.mktemp("tree")
    leave = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.egg-info")
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=leave)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built the way a release is: from the source distribution."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def clean_python(folder: Path) -> Path:
    """An environment without streamstate, which finds its dependencies in ours; nothing is downloaded."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # A path in a .pth file comes last and its own .pth files are not read: our editable install stays out of sight.
    (site / "borrowed.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    absent = "import importlib.util, sys; sys.exit(importlib.util.find_spec('streamstate') is not None)"
    run(python, "-c", absent, cwd=folder)
    return python


def install(python: Path, *what: str | Path) -> None:
    """Install into that environment with pip, streamstate alone."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    run(*pip, "--no-index", "--no-deps", "--ignore-installed", "--no-build-isolation", *what, cwd=python.parent.parent)


def where(python: Path) -> dict[str, str]:
    """The file of each part of streamstate, as a fresh process in that environment imports it."""
    parts = ["streamstate", *(path.replace("/", ".") for path in FOLDERS.values() if "/" in path)]
    code = f"import importlib, json; print(json.dumps({{n: importlib.import_module(n).__file__ for n in {parts}}}))"
    files: dict[str, str] = json.loads(run(python, "-c", code, cwd=python.parent.parent))
    return files


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a clean environment with the wheel installed."""
    python = clean_python(tmp_path_factory.mktemp("wheel") / "env")
    install(python, wheel)
    return python


def metadata(wheel: Path) -> Message:
    """What the wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_source_and_nothing_else(wheel: Path) -> None:
    """The folders become one package, with notebooks, styles and the type marker; tests stay out."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = sources(".py", ".ipynb", ".js", ".css", "py.typed")
    assert packed == {"/".join([FOLDERS[path.parts[0]], *path.parts[1:]]) for path in expected}


def test_the_wheel_carries_the_licence_and_the_readme(wheel: Path) -> None:
    """Who finds the package alone knows what it is and on what terms."""
    said = metadata(wheel)
    assert said["License-Expression"] == "Apache-2.0"
    assert said.get_all("License-File") == ["LICENSE"]
    assert said["Description-Content-Type"] == "text/markdown"
    assert said["Version"] == PROJECT["project"]["version"] == __import__("streamstate").__version__


def test_the_core_is_small_and_the_rest_is_extra(wheel: Path) -> None:
    """Without an extra nothing comes along that only tests, tutorials or JupyterLab need."""
    needed = map(Requirement, metadata(wheel).get_all("Requires-Dist") or [])
    core = {canonicalize_name(requirement.name) for requirement in needed if requirement.marker is None}
    assert core == {
        "anywidget", "deltalake", "duckdb", "ipython", "ipywidgets", "numpy", "pandas", "panel", "protobuf", "pyarrow",
        "pyspark", "sqlglot", "vl-convert-python", "xxhash",
    }  # fmt: skip
    assert set(metadata(wheel).get_all("Provides-Extra") or []) >= {"jdk", "lab", "lint", "test", "tutorials"}


def test_the_wheel_works_in_a_clean_environment(installed: Path) -> None:
    """Every part is imported from the wheel, none from the repository."""
    environment = installed.parent.parent
    assert {Path(file).is_relative_to(environment) for file in where(installed).values()} == {True}


def test_the_extension_loads_from_the_wheel_without_the_extras(installed: Path, tmp_path: Path) -> None:
    """``%load_ext streamstate`` in a plain IPython brings the magics, with the core dependencies alone."""
    session = tmp_path / "session.ipy"
    session.write_text(
        f"import sys; sys.modules.update(dict.fromkeys({sorted(only_in_extras())}))\n"
        "%load_ext streamstate\n"
        "shell = get_ipython()\n"
        "print('line', [bool(shell.find_line_magic(name)) for name in ('stream', 'state', 'snapshots')])\n"
        "print('cell', [bool(shell.find_cell_magic(name)) for name in ('stream', 'statesql')])\n"
        "%unload_ext streamstate\n"
        "print('left', shell.find_line_magic('state'))\n"
    )
    said = run(installed, "-m", "IPython", "--colors=nocolor", session, cwd=tmp_path).splitlines()
    assert said == ["line [True, True, True]", "cell [True, True]", "left None"]


def only_in_extras() -> set[str]:
    """The modules of the packages that extras name and the core does not; IPython is given none of them."""
    project = PROJECT["project"]
    lines = itertools.chain.from_iterable(project["optional-dependencies"].values())
    extras = {canonicalize_name(Requirement(line).name) for line in lines}
    extras -= {canonicalize_name(Requirement(line).name) for line in project["dependencies"]}
    return {
        module
        for module, distributions in packages_distributions().items()
        if module.isidentifier() and {canonicalize_name(name) for name in distributions} <= extras
    }


def test_pip_install_of_the_folder_works(tree: Path, tmp_path: Path) -> None:
    """``pip install .`` needs no wheel built before."""
    python = clean_python(tmp_path / "env")
    install(python, tree)
    assert {Path(file).is_relative_to(tmp_path) for file in where(python).values()} == {True}


def test_an_editable_install_follows_the_folders(tree: Path, tmp_path: Path) -> None:
    """``pip install -e .`` imports from the folders, also a module that was added later."""
    python = clean_python(tmp_path / "env")
    install(python, "--editable", tree)
    assert {name: Path(file).parent for name, file in where(python).items()} == {
        package.replace("/", "."): tree / folder for folder, package in FOLDERS.items()
    }
    (tree / "snapshots" / "added_later.py").write_text("here = True\n")
    code = "from streamstate.snapshots import added_later; print(added_later.here)"
    assert run(python, "-c", code, cwd=tmp_path).strip() == "True"


def test_conda_gets_what_the_project_needs() -> None:
    """environment.yml names a supported Python, a supported Java and extras that exist, and installs this project."""
    wanted = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    conda = dict(line.split("=") for line in wanted["dependencies"] if isinstance(line, str) and "=" in line)
    assert int(conda["openjdk"]) in java.SUPPORTED
    assert f"Programming Language :: Python :: {conda['python']}" in PROJECT["project"]["classifiers"]
    (pip,) = (line["pip"] for line in wanted["dependencies"] if isinstance(line, dict))
    assert pip == ["-e .[lab,tutorials]"]
    assert {"lab", "tutorials"} <= PROJECT["project"]["optional-dependencies"].keys()
    assert "pip" in wanted["dependencies"]
    assert wanted["name"] == "streamstate"

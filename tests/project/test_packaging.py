"""A wheel, ``pip install .`` and ``pip install -e .`` each install a working ``streamstate``.

Each is installed into a new environment, which takes all other packages from the environment of the tests.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from importlib.metadata import files, packages_distributions, requires, version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamstate.snapshots.spark import java

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]
NEEDED = [*PROJECT["project"]["dependencies"], *EXTRAS["spark"], *EXTRAS["notebook"]]
FOLDERS = {
    "kernel_ext": "streamstate",
    "command_line": "streamstate/command_line",
    "snapshots": "streamstate/snapshots",
    "state_inspect": "streamstate/state_inspect",
    "replay": "streamstate/replay",
    "operations": "streamstate/operations",
    "sharing": "streamstate/sharing",
    "variables": "streamstate/variables",
    "widgets": "streamstate/widgets",
    "tutorials": "streamstate/tutorials",
}


def names(requirements: Iterable[str]) -> set[str]:
    """The names of the required packages."""
    return {canonicalize_name(Requirement(line).name) for line in requirements}


def sources(*suffixes: str) -> list[Path]:
    """The package's files with given suffixes, relative to the repository."""
    files = (path for folder in FOLDERS for suffix in suffixes for path in (ROOT / folder).rglob(f"*{suffix}"))
    return sorted(path.relative_to(ROOT) for path in files if not {".ipynb_checkpoints"} & set(path.parts))


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command outside the repository; return its output."""
    environment = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    environment |= {"IPYTHONDIR": str(cwd / ".ipython"), "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    process = subprocess.run(
        command,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that builds do not write into the repository."""
    copy = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", ".ipynb_checkpoints", "*.egg-info")
    for name in ["pyproject.toml", "README.md", "LICENSE"]:
        shutil.copy(ROOT / name, copy)
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignore)
    return copy


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution like a release."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, tree, cwd=out)
    (built,) = out.glob("*.whl")
    return built


def clean_python(folder: Path) -> Path:
    """The Python of an environment without streamstate, which finds the dependencies in the current environment."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    # Python ignores .pth files in a path that is added by a .pth file, and so our editable install.
    (site / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    absent = "import importlib.util, sys; sys.exit(importlib.util.find_spec('streamstate') is not None)"
    run(python, "-c", absent, cwd=folder)
    return python


def install(python: Path, *what: str | Path) -> None:
    """Install streamstate into an environment with pip, without dependencies."""
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-input"]
    run(*pip, "--no-index", "--no-deps", "--ignore-installed", "--no-build-isolation", *what, cwd=python.parent.parent)


def imported_files(python: Path) -> dict[str, str]:
    """The file of each sub-package of streamstate, imported by a new process in an environment."""
    packages = ["streamstate", *(path.replace("/", ".") for path in FOLDERS.values() if "/" in path)]
    code = f"import importlib, json; print(json.dumps({{n: importlib.import_module(n).__file__ for n in {packages}}}))"
    files: dict[str, str] = json.loads(run(python, "-c", code, cwd=python.parent.parent))
    return files


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a clean environment with the wheel installed."""
    python = clean_python(tmp_path_factory.mktemp("wheel") / "env")
    install(python, wheel)
    return python


def metadata(wheel: Path) -> Message:
    """The metadata of the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


@pytest.mark.slow
def test_the_wheel_has_all_sources_and_no_other_files(wheel: Path) -> None:
    """The folders become one package, with notebooks, styles and the type marker, but without tests."""
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = sources(".py", ".ipynb", ".js", ".css", "py.typed")
    assert packed == {"/".join([FOLDERS[path.parts[0]], *path.parts[1:]]) for path in expected}


@pytest.mark.slow
def test_the_wheel_has_metadata(wheel: Path) -> None:
    """The metadata names the licence, the format of the README, and the version."""
    fields = metadata(wheel)
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields.get_all("License-File") == ["LICENSE"]
    assert fields["Description-Content-Type"] == "text/markdown"
    assert fields["Version"] == PROJECT["project"]["version"] == __import__("streamstate").__version__


def test_spark_notebooks_and_metrics_are_extras(wheel: Path) -> None:
    """The core depends only on packages for reading. ``all`` consists of the three extras."""
    requirements = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist") or []]
    core = {canonicalize_name(requirement.name) for requirement in requirements if requirement.marker is None}
    assert core == {"deltalake", "duckdb", "google-crc32c", "numpy", "pandas", "pyarrow", "sqlglot", "tqdm", "xxhash"}
    assert names(EXTRAS["spark"]) == {"protobuf", "psutil", "pyspark"}
    assert names(EXTRAS["notebook"]) >= {"anywidget", "ipython", "ipywidgets", "panel", "traitlets"}
    assert names(EXTRAS["sidecar"]) == {"obstore", "prometheus-client", "rocksdict"}
    assert EXTRAS["all"] == ["streamstate[spark,notebook,sidecar,variables]"]
    assert names(EXTRAS["variables"]) == {"cryptography", "datasketches", "redis"}
    expected = {"all", "lab", "notebook", "sidecar", "spark", "tutorials", "variables"}
    assert set(metadata(wheel).get_all("Provides-Extra") or []) == expected, "tools of developers are no extras"


def test_the_dependency_group_dev_has_every_group_but_that_of_releases() -> None:
    """``make`` installs it; a release's tools are installed for a release."""
    groups = PROJECT["dependency-groups"]
    included = {line["include-group"] for line in groups["dev"]}
    assert included == groups.keys() - {"dev", "release"}
    assert "--group dev" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["pyspark", "deltalake", "duckdb", "sqlglot"])
def test_packages_with_private_interfaces_have_an_upper_bound(name: str) -> None:
    """A new version may change private interfaces. The installed version is within the bounds."""
    (bounds,) = [requirement.specifier for requirement in map(Requirement, NEEDED) if requirement.name == name]
    assert {bound.operator for bound in bounds} == {">=", "<"}
    assert version(name) in bounds


def test_every_bound_allows_the_installed_version() -> None:
    """Tests run with versions that users can install."""
    requirements = [*NEEDED, *EXTRAS["tutorials"]]
    for requirement in map(Requirement, requirements):
        assert requirement.specifier.contains(version(requirement.name)), requirement
    assert "setuptools" not in names(requirements)


def test_lower_bounds_equal_those_of_pyspark() -> None:
    """They are taken from its metadata and its generated Protobuf code."""
    bounds = {requirement.name: requirement.specifier for requirement in map(Requirement, NEEDED)}
    required = [
        requirement for requirement in map(Requirement, requires("pyspark") or []) if requirement.name == "pyarrow"
    ]
    assert {str(requirement.specifier) for requirement in required} == {">=18.0.0"}
    assert "17.99" not in bounds["pyarrow"]
    assert "6.33.4" not in bounds["protobuf"]
    installed_files = files("pyspark") or []
    code = next(file for file in installed_files if file.name == "StateMessage_pb2.py").read_text()
    assert re.search(r"Domain\.PUBLIC,\s+6,\s+33,\s+5,", code)


def test_only_public_modules_of_sqlglot_are_imported() -> None:
    """Other modules are renamed in minor versions."""
    imported = {
        module
        for path in sources(".py")
        for module in re.findall(r"(?:from|import) (sqlglot[\w.]*)", (ROOT / path).read_text(encoding="utf-8"))
    }
    assert imported <= {"sqlglot", "sqlglot.errors"}


@pytest.mark.slow
def test_the_wheel_works_in_a_clean_environment(installed: Path) -> None:
    """Every sub-package is imported from the wheel, and none from the repository."""
    environment = installed.parent.parent
    assert {Path(file).is_relative_to(environment) for file in imported_files(installed).values()} == {True}


@pytest.mark.slow
def test_the_extension_loads_from_the_wheel_without_other_extras(installed: Path, tmp_path: Path) -> None:
    """``%load_ext streamstate`` loads the magics into IPython with the extra ``notebook`` only."""
    session = tmp_path / "session.ipy"
    session.write_text(
        f"import sys; sys.modules.update(dict.fromkeys({sorted(only_in_other_extras())}))\n"
        "%load_ext streamstate\n"
        "shell = get_ipython()\n"
        "print('line', [bool(shell.find_line_magic(name)) for name in ('stream', 'state', 'snapshots')])\n"
        "print('cell', [bool(shell.find_cell_magic(name)) for name in ('stream', 'statesql')])\n"
        "%unload_ext streamstate\n"
        "print('left', shell.find_line_magic('state'))\n"
    )
    lines = run(installed, "-m", "IPython", "--colors=nocolor", session, cwd=tmp_path).splitlines()
    assert lines == ["line [True, True, True]", "cell [True, True]", "left None"]


def only_in_other_extras() -> set[str]:
    """The modules of packages that neither the core nor ``notebook`` requires, including Spark's."""
    extras = {"py4j", *names(itertools.chain.from_iterable(EXTRAS.values()))} - {"streamstate"}
    extras -= names([*PROJECT["project"]["dependencies"], *EXTRAS["notebook"]])
    return {
        module
        for module, distributions in packages_distributions().items()
        if module.isidentifier() and {canonicalize_name(name) for name in distributions} <= extras
    }


@pytest.mark.exhaustive
@pytest.mark.slow
def test_pip_install_of_the_folder_works(tree: Path, tmp_path: Path) -> None:
    """``pip install .`` installs all sub-packages."""
    python = clean_python(tmp_path / "env")
    install(python, tree)
    assert {Path(file).is_relative_to(tmp_path) for file in imported_files(python).values()} == {True}


@pytest.mark.slow
def test_an_editable_install_follows_the_folders(tree: Path, tmp_path: Path) -> None:
    """``pip install -e .`` imports from the folders, including modules added later."""
    python = clean_python(tmp_path / "env")
    install(python, "--editable", tree)
    assert {name: Path(file).parent for name, file in imported_files(python).items()} == {
        package.replace("/", "."): tree / folder for folder, package in FOLDERS.items()
    }
    (tree / "snapshots" / "added_later.py").write_text("added = True\n")
    code = "from streamstate.snapshots import added_later; print(added_later.added)"
    assert run(python, "-c", code, cwd=tmp_path).strip() == "True"


def test_the_conda_environment_matches_the_project() -> None:
    """environment.yml has a supported Python and Java, and installs the project with existing extras."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    conda = dict(line.split("=") for line in environment["dependencies"] if isinstance(line, str) and "=" in line)
    assert int(conda["openjdk"]) in java.SUPPORTED
    assert f"Programming Language :: Python :: {conda['python']}" in PROJECT["project"]["classifiers"]
    (pip,) = (line["pip"] for line in environment["dependencies"] if isinstance(line, dict))
    assert pip == ["-e .[all,lab,tutorials]"]
    assert {"all", "lab", "tutorials"} <= EXTRAS.keys()
    assert "pip" in environment["dependencies"]
    assert environment["name"] == "streamstate"

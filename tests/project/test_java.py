"""Java 17 or 21 is found in the usual places, or installed, or the error has three lines of installation commands."""

from __future__ import annotations

import functools
import hashlib
import http.server
import json
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamstate.errors import JavaNotFoundError, StreamStateError
from streamstate.snapshots.spark import java

THREE_LINES = [
    "Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (newer releases: openjdk-21-jre-headless)",
    "macOS:           brew install openjdk@17",
    "conda:           conda install -c conda-forge openjdk=17",
]


def program(path: Path, lines: str) -> Path:
    """Write an executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def a_java(home: Path, version: str = "17.0.9") -> Path:
    """Create a home folder with a ``java`` that prints this version to stderr."""
    program(home / "bin" / "java", f"""echo 'openjdk version "{version}" 2023-10-17' >&2""")
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without Java: an empty PATH, an empty Python environment, and none of the usual folders."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "env").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(java, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(java, "USER_FOLDERS", ())
    return tmp_path


def test_this_machine_has_a_java_that_runs() -> None:
    """The result is the home of a real Java 17 or 21."""
    executable = java.find_java() / "bin" / "java"
    process = subprocess.run([executable, "-version"], capture_output=True, text=True, check=True)
    assert any(f'version "{version}.' in process.stderr for version in java.SUPPORTED)


@pytest.mark.parametrize("version", ["17", "17.0.9", "21.0.1", "21-ea"])
def test_java_17_and_21_are_found(machine: Path, version: str) -> None:
    """Both supported versions are accepted, in all formats."""
    home = a_java(machine, version)
    assert java.find_java() == home


@pytest.mark.parametrize(("version", "number"), [("1.8.0_392", "8"), ("11.0.21", "11"), ("25.0.3", "25")])
def test_other_versions_are_skipped_and_named(machine: Path, version: str, number: str) -> None:
    """Unsupported versions are not used. The message has their path and version."""
    home = a_java(machine, version)
    with pytest.raises(JavaNotFoundError) as caught:
        java.find_java()
    assert f"Not usable: {home / 'bin' / 'java'} (Java {number})." in str(caught.value)


def test_the_message_has_three_installation_commands(machine: Path) -> None:
    """Without Java, the error names the supported versions and the commands that install one."""
    with pytest.raises(JavaNotFoundError) as caught:
        java.require_java()
    assert str(caught.value).splitlines() == ["Spark needs Java 17 or 21, and none was found.", *THREE_LINES]
    assert isinstance(caught.value, StreamStateError)
    assert isinstance(caught.value, RuntimeError)


def test_java_home_takes_precedence_over_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java on PATH is ignored."""
    a_java(machine)
    home = a_java(machine / "chosen", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(home))
    assert java.require_java() == home == Path(os.environ["JAVA_HOME"])


def test_a_later_java_on_the_path_is_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unsupported Java does not hide a supported one later on PATH."""
    first, second = a_java(machine / "first", "25"), a_java(machine / "second")
    monkeypatch.setenv("PATH", os.pathsep.join([str(first / "bin"), str(second / "bin")]))
    assert java.find_java() == second


def test_a_shim_is_resolved(machine: Path) -> None:
    """The ``java`` of a version manager is a script. The result is the home that it reports."""
    home = a_java(machine / "versions" / "17")
    settings = f"""printf 'Property settings:\\n    java.home = {home}\\n    java.version = 17.0.9\\n' >&2"""
    program(machine / "bin" / "java", f'{settings}\nexec "{home}/bin/java" "$@"')
    assert java.find_java() == home


@pytest.mark.parametrize("lines", ["exit 1", "echo 'java is not set up' >&2", "kill -9 $$"])
def test_a_java_that_does_not_run_is_skipped(machine: Path, lines: str) -> None:
    """Broken shims are skipped, and named in the message."""
    shim = program(machine / "bin" / "java", lines)
    home = a_java(machine / "env" / "jdk" / "jdk-17.0.9+9-jre")
    assert java.find_java() == home
    (home / "bin" / "java").unlink()
    with pytest.raises(JavaNotFoundError, match=f"{shim} \\(does not run\\)"):
        java.find_java()


@pytest.mark.parametrize("inside", ["jdk/jdk-17.0.9+9-jre", "jdk/jdk-17.0.9+9-jre/Contents/Home", "lib/jvm"])
def test_the_python_environment_is_searched(machine: Path, inside: str) -> None:
    """Java that was downloaded (on Linux or macOS) or installed by conda is found although it is not on PATH."""
    home = a_java(machine / "env" / inside)
    assert java.find_java() == home


def test_the_usual_folders_are_searched(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java in a system or user folder is found although it is not on PATH. Unsupported versions are skipped."""
    a_java(machine / "jvm" / "java-11", "11.0.21")
    home = a_java(machine / "jvm" / "java-17")
    monkeypatch.setenv("HOME", str(machine))
    monkeypatch.setattr(java, "USER_FOLDERS", ("jvm/*",))
    assert java.find_java() == home


def test_java_home_is_set(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JAVA_HOME is set for Spark if it is empty."""
    home = a_java(machine)
    monkeypatch.setenv("JAVA_HOME", "")
    assert java.require_java() == home == Path(os.environ["JAVA_HOME"])


def test_an_unusable_java_home_is_replaced_with_a_warning(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The warning names the old value."""
    monkeypatch.setenv("JAVA_HOME", str(a_java(machine / "java25", "25.0.3")))
    home = a_java(machine)
    with pytest.warns(RuntimeWarning, match=r"JAVA_HOME \(.*\) is not a Java 17 or 21"):
        assert java.require_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_a_session_without_java_is_an_error(tmp_path: Path) -> None:
    """The message has the installation commands. The library can be imported without Java."""
    code = (
        "import streamstate as ss, streamstate.snapshots.spark.java as java\n"
        "java.SYSTEM_FOLDERS = java.USER_FOLDERS = java.ENVIRONMENT_FOLDERS = ()\n"
        "try:\n    ss.session()\nexcept ss.StreamStateError as error:\n    print(error)"
    )
    process = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert process.stdout.splitlines()[-3:] == THREE_LINES


# Installation.


@pytest.fixture
def apt(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Create an ``apt-get`` that root can run; return the file in which it logs its calls."""
    log = machine / "calls"

    def make(lines: str) -> Path:
        program(machine / "bin" / "apt-get", f'echo "$DEBIAN_FRONTEND $@" >> {log}\n{lines}')
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        return log

    return make


APT_FAILS = "echo 'E: Unable to locate package' >&2; exit 100"


def installing(machine: Path, package: str) -> str:
    """The script of an ``apt-get`` that can install one package, with a Java."""
    a_java(machine / "archive")
    install = f"/bin/ln -s {machine}/archive/bin/java {machine}/bin/java"
    return f'case "$*" in *update) exit 100 ;; *{package}) {install} ;; *) {APT_FAILS} ;; esac'


def test_nothing_is_installed_if_java_is_found(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is printed."""
    home = a_java(machine)
    assert java.ensure_java() == home
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_root_installs_java_with_apt_get(machine: Path, apt: Callable[[str], Path], package: str) -> None:
    """apt-get installs the available version without prompts, even if its update failed."""
    log = apt(installing(machine, package))
    assert java.ensure_java() == machine / "archive"
    calls = log.read_text().splitlines()
    assert calls[0].endswith("update")
    assert calls[-1].endswith(f"install --yes --no-install-recommends {package}")
    assert all(call.startswith("noninteractive -qq ") for call in calls)


@pytest.fixture
def archives(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A local server instead of Adoptium's, with the file ``jre.tar.gz`` and its SHA-256."""
    folder = machine / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/jre.tar.gz":
                super().do_GET()
                return
            assert self.path.startswith("/v3/assets/latest/17/hotspot?image_type=jre&vendor=eclipse&os=")
            archive = folder / "jre.tar.gz"
            assets = []
            if archive.exists():
                file = folder / "checksum"
                checksum = file.read_text() if file.exists() else hashlib.sha256(archive.read_bytes()).hexdigest()
                assets.append({"binary": {"package": {"link": f"{java.ADOPTIUM}/jre.tar.gz", "checksum": checksum}}})
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(assets).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        monkeypatch.setattr(java, "ADOPTIUM", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        yield folder
        server.shutdown()
        thread.join()


def test_java_is_downloaded_from_adoptium(
    machine: Path, archives: Path, apt: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """If apt-get fails, Java is downloaded and unpacked into ``jdk/``, where it is found later."""
    with tarfile.open(archives / "jre.tar.gz", "w:gz") as archive:
        archive.add(a_java(machine / "packed"), "jdk-17.0.9+9-jre")
    log = apt(APT_FAILS)
    home = machine / "env" / "jdk" / "jdk-17.0.9+9-jre"
    assert java.ensure_java() == home
    assert log.exists(), "apt-get is tried first"
    (archives / "jre.tar.gz").unlink()
    assert java.ensure_java() == home
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[2].split()[0] for line in lines] == ["installing", "downloading"]
    assert all("set STREAMSTATE_NO_INSTALL=1 to prevent this" in line for line in lines)


def test_a_download_with_a_wrong_checksum_is_refused(machine: Path, archives: Path) -> None:
    """Nothing is unpacked."""
    with tarfile.open(archives / "jre.tar.gz", "w:gz") as archive:
        archive.add(a_java(machine / "packed"), "jdk-17.0.9+9-jre")
    (archives / "checksum").write_text("0" * 64)
    with pytest.raises(JavaNotFoundError, match=f"SHA-256 of .* is [0-9a-f]+; expected {'0' * 64}"):
        java.ensure_java()
    assert list((machine / "env" / "jdk").iterdir()) == []


def test_installation_can_be_disabled(
    machine: Path, archives: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With STREAMSTATE_NO_INSTALL=1, nothing is installed, and the message has the installation commands."""
    log = apt(installing(machine, "openjdk-17-jre-headless"))
    monkeypatch.setenv("STREAMSTATE_NO_INSTALL", "1")
    with pytest.raises(JavaNotFoundError, match="STREAMSTATE_NO_INSTALL is set, so no Java was installed") as caught:
        java.ensure_java()
    assert str(caught.value).splitlines()[-3:] == THREE_LINES
    assert not log.exists()
    assert not (machine / "env" / "jdk").exists()
    home = a_java(machine)
    assert java.ensure_java() == home


@pytest.mark.parametrize("served", [None, b"no archive"])
def test_a_failed_download_leaves_nothing_behind(
    machine: Path, archives: Path, capsys: pytest.CaptureFixture[str], served: bytes | None
) -> None:
    """For a missing or broken archive, the error has the installation commands, and no folder is left."""
    if served:
        (archives / "jre.tar.gz").write_bytes(served)
    assert java.main() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Installing it with apt-get failed: apt-get is not available."
    assert lines[1].startswith("Downloading it from Adoptium failed: ")
    assert lines[-3:] == THREE_LINES
    assert list((machine / "env" / "jdk").iterdir()) == []


def test_a_downloaded_java_that_does_not_run_is_an_error(machine: Path, archives: Path) -> None:
    """The message has the installation commands."""
    broken = a_java(machine / "packed")
    (broken / "bin" / "java").write_text("#!/nowhere/sh\n")
    with tarfile.open(archives / "jre.tar.gz", "w:gz") as archive:
        archive.add(broken, "jdk-17.0.9+9-jre")
    with pytest.raises(JavaNotFoundError, match="the installed Java does not run") as caught:
        java.ensure_java()
    assert str(caught.value).splitlines()[-3:] == THREE_LINES


def test_both_reasons_are_printed_if_both_ways_fail(
    machine: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command fails with apt-get's error, the error of the download, and the installation commands."""
    apt(APT_FAILS)
    monkeypatch.setattr(java, "ADOPTIUM", "http://127.0.0.1:1")
    assert java.main() == 1
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Installing it with apt-get failed: E: Unable to locate package."
    assert lines[1].startswith("Downloading it from Adoptium failed: <urlopen error ")
    assert lines[-3:] == THREE_LINES


def test_without_root_apt_get_is_not_called(
    machine: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that it requires root."""
    log = apt(APT_FAILS)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(java, "ADOPTIUM", "http://127.0.0.1:1")
    with pytest.raises(JavaNotFoundError, match="apt-get failed: it requires root"):
        java.ensure_java()
    assert not log.exists()


def test_the_command_prints_the_java_that_it_found() -> None:
    """``python -m streamstate.java`` prints the Java that Spark will use."""
    process = subprocess.run([sys.executable, "-m", "streamstate.java"], capture_output=True, text=True, check=True)
    assert "(Java 17)" in process.stdout or "(Java 21)" in process.stdout

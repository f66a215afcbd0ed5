"""A Java 17 or 21 is found wherever it may be, gotten where there is none, and asked for in three plain lines."""

from __future__ import annotations

import functools
import http.server
import os
import subprocess
import sys
import tarfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from streamstate import java
from streamstate.snapshots.errors import JavaNotFoundError, StreamStateError

THREE_LINES = [
    "Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless   (newer releases: openjdk-21-jre-headless)",
    "macOS:           brew install openjdk@17",
    "conda:           conda install -c conda-forge openjdk=17",
]


def program(path: Path, lines: str) -> Path:
    """A shell script that can be run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{lines}\n")
    path.chmod(0o755)
    return path


def a_java(home: Path, version: str = "17.0.9") -> Path:
    """A home folder with a ``java`` in it that says it is of this version, on stderr as every Java does."""
    program(home / "bin" / "java", f"""echo 'openjdk version "{version}" 2023-10-17' >&2""")
    return home


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any Java: an empty PATH, an empty Python environment, none of the usual folders."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "env").mkdir()
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(java, "SYSTEM_FOLDERS", ())
    monkeypatch.setattr(java, "USER_FOLDERS", ())
    return tmp_path


def test_this_machine_has_a_java_that_runs() -> None:
    """What is found is the home folder of a real Java 17 or 21."""
    said = subprocess.run([java.find_java() / "bin" / "java", "-version"], capture_output=True, text=True, check=True)
    assert any(f'version "{version}.' in said.stderr for version in java.SUPPORTED)


@pytest.mark.parametrize("version", ["17", "17.0.9", "21.0.1", "21-ea"])
def test_java_17_and_21_fit(machine: Path, version: str) -> None:
    """Both supported versions are taken, in every spelling of a version."""
    home = a_java(machine, version)
    assert java.find_java() == home


@pytest.mark.parametrize(("version", "named"), [("1.8.0_392", "8"), ("11.0.21", "11"), ("25.0.3", "25")])
def test_other_versions_are_passed_over_and_named(machine: Path, version: str, named: str) -> None:
    """A Java of another version is not taken, and the message says which was seen where."""
    home = a_java(machine, version)
    with pytest.raises(JavaNotFoundError) as caught:
        java.find_java()
    assert f"Passed over: {home / 'bin' / 'java'} (Java {named})." in str(caught.value)


def test_the_message_ends_in_three_lines_that_say_how(machine: Path) -> None:
    """Without any Java the error says what is needed and, in three lines, how to get it."""
    with pytest.raises(JavaNotFoundError) as caught:
        java.require_java()
    assert str(caught.value).splitlines() == ["Spark needs Java 17 or 21, and none was found.", *THREE_LINES]
    assert isinstance(caught.value, StreamStateError)
    assert isinstance(caught.value, RuntimeError)


def test_java_home_comes_before_path(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What JAVA_HOME names was chosen on purpose."""
    a_java(machine)
    chosen = a_java(machine / "chosen", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(chosen))
    assert java.require_java() == chosen == Path(os.environ["JAVA_HOME"])


def test_a_later_java_on_the_path_is_found(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that does not fit hides no other further along PATH."""
    first, second = a_java(machine / "first", "25"), a_java(machine / "second")
    monkeypatch.setenv("PATH", os.pathsep.join([str(first / "bin"), str(second / "bin")]))
    assert java.find_java() == second


def test_a_shim_answers_for_the_java_behind_it(machine: Path) -> None:
    """The ``java`` of a version manager is a script; the home it reports is what counts."""
    home = a_java(machine / "versions" / "17")
    settings = f"""printf 'Property settings:\\n    java.home = {home}\\n    java.version = 17.0.9\\n' >&2"""
    program(machine / "bin" / "java", f'{settings}\nexec "{home}/bin/java" "$@"')
    assert java.find_java() == home


@pytest.mark.parametrize("lines", ["exit 1", "echo 'java is not set up' >&2", "kill -9 $$"])
def test_a_java_that_does_not_run_is_passed_over(machine: Path, lines: str) -> None:
    """Shims without a Java behind them, and broken ones, are no Java."""
    shim = program(machine / "bin" / "java", lines)
    home = a_java(machine / "env" / "jdk" / "jdk-17.0.9+9-jre")
    assert java.find_java() == home
    (home / "bin" / "java").unlink()
    with pytest.raises(JavaNotFoundError, match=f"{shim} \\(does not run\\)"):
        java.find_java()


@pytest.mark.parametrize("inside", ["jdk/jdk-17.0.9+9-jre", "jdk/jdk-17.0.9+9-jre/Contents/Home", "lib/jvm"])
def test_the_python_environment_is_looked_into(machine: Path, inside: str) -> None:
    """Where install-jdk (on Linux, on macOS) and conda put a Java, it is found without being on PATH."""
    home = a_java(machine / "env" / inside)
    assert java.find_java() == home


def test_the_usual_folders_are_looked_into(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java of the system or of the user need not be on PATH, nor the first there."""
    a_java(machine / "jvm" / "java-11", "11.0.21")
    home = a_java(machine / "jvm" / "java-17")
    monkeypatch.setenv("HOME", str(machine))
    monkeypatch.setattr(java, "USER_FOLDERS", ("jvm/*",))
    assert java.find_java() == home


def test_java_home_is_set_where_it_was_not(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark starts what JAVA_HOME names, so the process gets it."""
    home = a_java(machine)
    monkeypatch.setenv("JAVA_HOME", "")
    assert java.require_java() == home == Path(os.environ["JAVA_HOME"])


def test_an_unusable_java_home_is_replaced_and_said(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A JAVA_HOME of the wrong version is not used silently, and not overruled silently."""
    monkeypatch.setenv("JAVA_HOME", str(a_java(machine / "java25", "25.0.3")))
    home = a_java(machine)
    with pytest.warns(RuntimeWarning, match="JAVA_HOME names no Java 17 or 21"):
        assert java.require_java() == home
    assert os.environ["JAVA_HOME"] == str(home)


def test_spark_says_the_three_lines_when_it_is_first_needed(tmp_path: Path) -> None:
    """The library itself, without Java, imports; asked for a session it says how to get one."""
    code = (
        "import streamstate as ss, streamstate.java as java\n"
        "java.SYSTEM_FOLDERS = java.USER_FOLDERS = java.ENVIRONMENT_FOLDERS = ()\n"
        "try:\n    ss.session()\nexcept ss.StreamStateError as error:\n    print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines()[-3:] == THREE_LINES


# Getting one.


@pytest.fixture
def apt(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Make an ``apt-get`` that root can run; returns the file in which it notes how it was called."""
    notes = machine / "calls"

    def make(lines: str) -> Path:
        program(machine / "bin" / "apt-get", f'echo "$DEBIAN_FRONTEND $@" >> {notes}\n{lines}')
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        return notes

    return make


APT_FAILS = "echo 'E: Unable to locate package' >&2; exit 100"


def installing(machine: Path, package: str) -> str:
    """An ``apt-get`` that knows one package, a Java."""
    a_java(machine / "archive")
    install = f"/bin/ln -s {machine}/archive/bin/java {machine}/bin/java"
    return f'case "$*" in *update) exit 100 ;; *{package}) {install} ;; *) {APT_FAILS} ;; esac'


def test_a_java_that_is_there_is_not_gotten_again(machine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where there is one, nothing is installed and nothing said."""
    home = a_java(machine)
    assert java.ensure_java() == home
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_root_gets_one_with_apt_get(machine: Path, apt: Callable[[str], Path], package: str) -> None:
    """apt-get installs the version that the system has, also when its update failed, and asks nothing."""
    notes = apt(installing(machine, package))
    assert java.ensure_java() == machine / "archive"
    calls = notes.read_text().splitlines()
    assert calls[0].endswith("update")
    assert calls[-1].endswith(f"install --yes --no-install-recommends {package}")
    assert all(call.startswith("noninteractive -qq ") for call in calls)


@pytest.fixture
def archives(machine: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A server on this machine in place of the one install-jdk downloads from; answers with the file ``jre.tar.gz``."""
    adoptium = pytest.importorskip("jdk.client.adoptium")
    folder = machine / "served"
    folder.mkdir()

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            assert "/17/ga/" in self.path
            assert "/jre/" in self.path
            self.path = "/jre.tar.gz"
            super().do_GET()

        def end_headers(self) -> None:
            self.send_header("Content-Disposition", f"attachment; filename=jre-{os.getpid()}.tar.gz")
            super().end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name http.server gives it
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        place = SimpleNamespace(value=f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setattr(adoptium.AdoptiumClient.__init__, "__defaults__", (place,))
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        yield folder
        server.shutdown()
        thread.join()


def test_install_jdk_puts_one_into_the_environment(
    machine: Path, archives: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without apt-get, install-jdk downloads and unpacks a Java into ``jdk/``, where it is found from then on."""
    with tarfile.open(archives / "jre.tar.gz", "w:gz") as archive:
        archive.add(a_java(machine / "packed"), "jdk-17.0.9+9-jre")
    notes = apt(APT_FAILS)
    home = machine / "env" / "jdk" / "jdk-17.0.9+9-jre"
    assert java.ensure_java() == home
    assert notes.exists(), "apt-get is tried first"
    monkeypatch.setitem(sys.modules, "jdk", None)
    assert java.ensure_java() == home


@pytest.mark.parametrize("served", [None, b"no archive"])
def test_a_failed_download_leaves_nothing_half_made(
    machine: Path, archives: Path, capsys: pytest.CaptureFixture[str], served: bytes | None
) -> None:
    """A missing or broken archive is an error that says the three lines, and leaves no folder to trip over."""
    if served:
        (archives / "jre.tar.gz").write_bytes(served)
    assert java.main() == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "apt-get did not get one: there is no apt-get here."
    assert said[1].startswith("install-jdk did not get one: ")
    assert said[-3:] == THREE_LINES
    assert list((machine / "env" / "jdk").iterdir()) == []


def test_a_downloaded_java_that_does_not_run_is_said(machine: Path, archives: Path) -> None:
    """A Java for another machine is gotten but not taken."""
    broken = a_java(machine / "packed")
    (broken / "bin" / "java").write_text("#!/nowhere/sh\n")
    with tarfile.open(archives / "jre.tar.gz", "w:gz") as archive:
        archive.add(broken, "jdk-17.0.9+9-jre")
    with pytest.raises(JavaNotFoundError, match="what it installed does not run") as caught:
        java.ensure_java()
    assert str(caught.value).splitlines()[-3:] == THREE_LINES


def test_when_both_ways_fail_each_says_why(
    machine: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command ends with status 1, apt-get's own error, what install-jdk lacked, and the three lines."""
    apt(APT_FAILS)
    monkeypatch.setitem(sys.modules, "jdk", None)
    assert java.main() == 1
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "apt-get did not get one: E: Unable to locate package."
    assert said[1] == 'install-jdk did not get one: it is not installed (pip install "streamstate[jdk]").'
    assert said[-3:] == THREE_LINES


def test_without_root_apt_get_is_left_alone(
    machine: Path, apt: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is asked of a system that is not ours to change."""
    notes = apt(APT_FAILS)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setitem(sys.modules, "jdk", None)
    with pytest.raises(JavaNotFoundError, match="apt-get did not get one: it needs root"):
        java.ensure_java()
    assert not notes.exists()


def test_the_command_names_the_java_it_found() -> None:
    """``python -m streamstate.java`` ends with the Java that Spark will run on."""
    done = subprocess.run([sys.executable, "-m", "streamstate.java"], capture_output=True, text=True, check=True)
    assert "(Java 17)" in done.stdout or "(Java 21)" in done.stdout

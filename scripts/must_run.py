"""A pytest plugin that takes no silence for success: ``python -m pytest -p scripts.must_run``.

The run fails when no test passed, when a browser test was skipped, and when there was no browser test in a full run.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest

_PASSED = pytest.StashKey[dict[str, int]]()


def pytest_configure(config: pytest.Config) -> None:
    """Start counting."""
    config.stash[_PASSED] = passed = {"all": 0, "browser": 0}
    config.pluginmanager.register(_Counter(passed))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Make a skipped browser test a failed one."""
    report = yield
    if report.skipped and item.get_closest_marker("browser") is not None and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"A browser test must run here, and was skipped: {report.longrepr}"
    return report


class _Counter:
    """Counts what passed, wherever it ran: reports of all workers arrive at the process that started them."""

    def __init__(self, passed: dict[str, int]) -> None:
        self._passed = passed

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One part of one test is over."""
        if report.passed and report.when == "call":
            self._passed["all"] += 1
            self._passed["browser"] += "browser" in report.keywords


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail the run when nothing ran."""
    worker = hasattr(session.config, "workerinput")  # one of several processes, which need not all have a browser test
    if exitstatus == pytest.ExitCode.OK and not worker and _missing(session.config):
        session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was counted."""
    passed = config.stash[_PASSED]
    terminalreporter.write_line(f"{passed['all']} tests passed, {passed['browser']} of them in a browser.")
    if missing := _missing(config):
        terminalreporter.write_line(f"Failed: no {missing} passed.", red=True)


def _missing(config: pytest.Config) -> str:
    """The kind of test of which none passed; a run limited by ``-k`` need not reach the browser."""
    passed = config.stash[_PASSED]
    chosen = config.getoption("keyword")
    return "test" if not passed["all"] else "browser test" if not passed["browser"] and not chosen else ""

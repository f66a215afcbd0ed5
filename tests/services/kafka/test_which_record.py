"""The tutorial that goes from an empty broker to the record behind a number."""

from __future__ import annotations

from notebooks.running import latest_run, output_of, shows_no_noise


def test_the_tutorial_finds_the_record() -> None:
    """Its own cells check its claims; here, what a reader sees."""
    shown = latest_run("08_which_record")
    assert shows_no_noise([cell for cell in shown if "kafka.servers" not in cell[0]])
    assert "flights: partition 0 from " in output_of(shown, "%snapshots delays")
    why = output_of(shown, "%state delays why")
    assert "flights" in why
    assert '"dep_delay":1301.0' in output_of(shown, 'record["topic"]')
    assert "cause: input" in why
    waiting = [
        text for source, text in shown if any(f"P08.{call}(" in source for call in ("predict", "reveal", "check"))
    ]
    assert {text.split()[0] for text in waiting} == {"…"}
    assert len(waiting) == 8

"""Going back in a stream and running forward again: forks, steps, debug sessions, replays and audits.

In the literature: StreamScope's replay debugging.
"""

"""Linear Road on Structured Streaming: traffic, the streaming query, an oracle for every answer, and the measurement.

Arasu et al., "Linear Road: A Stream Data Management Benchmark", VLDB 2004. ``docs/contributing/linear_road.md`` says
what was simplified.
"""

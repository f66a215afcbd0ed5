"""Captures that are too large for one process: Spark's executors write the files, the driver commits them.

``tasks`` is what runs in the executors; it imports neither deltalake nor anything that does. ``large_capture`` is the
driver's half, ``reports`` what the tasks tell it, ``scale`` when a pass is large.
"""

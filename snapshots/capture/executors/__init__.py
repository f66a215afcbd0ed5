"""Captures that are too large for the driver: Spark's executors write the data files, the driver commits them.

``tasks`` run in the executors and import neither deltalake nor anything that does. ``writer`` is the
driver's side, and ``reports`` is what tasks send back.
"""

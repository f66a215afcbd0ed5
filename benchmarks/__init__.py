"""Cost of streamstate, compared with what a user would do instead.

``python -m benchmarks`` runs all; each figure is a ratio of medians from one run whose sides alternate.
"""

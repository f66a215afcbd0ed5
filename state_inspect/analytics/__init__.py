"""Questions about a whole state: what its columns hold, how it is spread, how it grows, and which keys are stale.

The functions here run SQL in the temporal index, or read the manifest alone, and return pandas frames.
"""

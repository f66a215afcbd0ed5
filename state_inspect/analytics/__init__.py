"""Questions about a whole state: what its columns hold, how it is spread, how it grows, and what nobody touches.

Each is answered by SQL in the temporal index, or from the manifest alone, as a pandas frame.
"""

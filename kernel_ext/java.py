"""Find or install the Java that Spark runs on: ``python -m streamstate.java``."""

from __future__ import annotations

import sys

from streamstate.snapshots.spark.java import main

if __name__ == "__main__":
    sys.exit(main())

"""The program of the worker process."""

from streamstate.snapshots.spark.worker.serving import main

if __name__ == "__main__":
    main()

"""Exactly once, torn never, nothing silently damaged: capture is killed, its disk fails, its files are damaged.

- ``test_shim.py``: what makes calls fail (``faultfs.c``) is seen to see them all, and to do each thing that it can.
- ``test_faults.py``: a capture is killed (SIGKILL) at a call that changes the store's files, or at any moment, or its
  calls fail with EIO, ENOSPC or EMFILE. Whatever is visible then is right, and the next capture completes it.
- ``test_damage.py``: a byte of a file is flipped, a file is cut off or emptied. Every answer is right or an error.
- ``test_writers.py``: many processes capture one query into one store at once.

The suite runs a size that fits; ``STREAMSTATE_FAULTS=full`` runs 320 faults, 320 damages and 8 writers of 200 epochs.
What is drawn follows from ``STREAMSTATE_FAULTS_SEED`` (a number; 1 where it is not set), and every failure names the
round that it came from: ``STREAMSTATE_FAULTS_ROUND=17`` runs that round alone.

Linux only: a library is preloaded, which the tests compile with the C compiler that they find (``$CC`` or ``cc``).
"""

"""Crash and fault tests: capture is exactly-once and atomic, and damage to files is always detected.

- ``test_shim.py``: the fault injection library (``faultfs.c``) sees every call, and each kind of fault works.
- ``test_faults.py``: capture is killed (SIGKILL) at a call that changes the store's files or at any time, or its
  calls fail with EIO, ENOSPC or EMFILE. All visible epochs are correct, and the next capture completes the store.
- ``test_damage.py``: a byte of a file is flipped, or a file is truncated. Every answer is correct or an error.
- ``test_writers.py``: several processes capture one query into one store concurrently.

The suite runs a small number of rounds; ``STREAMSTATE_FAULTS=full`` runs 320 faults, 320 damaged files and 8 writers
of 200 epochs. ``STREAMSTATE_FAULTS_SEED`` (a number, 1 by default) seeds the random choices. Every failure names its
round: ``STREAMSTATE_FAULTS_ROUND=17`` runs that round alone.

Linux only: the tests compile a preloaded library with the C compiler (``$CC`` or ``cc``).
"""

"""A process that contends for a lease on disk: ``python contender.py FOLDER LOG``. It imports little."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from streamstate.operations.availability.lease import Lease, boot_time
from streamstate.operations.availability.lease_files import lease_files
from streamstate.snapshots.store.layout import Layout

LASTS = 0.6


def main(folder: str, log: str) -> None:
    """Contend, and log each moment at which the lease is held: its token, and the time before and after the check."""
    lease = Lease(lease_files(Layout.at(folder)), folder, lasts=LASTS)
    with Path(log).open("a", encoding="utf-8", buffering=1) as file:
        next_renewal = 0.0
        while True:
            if lease.token is None:
                lease.try_acquire()
            elif time.monotonic() >= next_renewal:
                lease.renew()
                next_renewal = time.monotonic() + lease.renewed_every
            token, began = lease.token, boot_time()
            if lease.holds:
                file.write(f"{token} {began}\n")
            time.sleep(0.005)


if __name__ == "__main__":
    main(*sys.argv[1:])

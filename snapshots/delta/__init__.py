"""Delta tables that a crash does not tear and damage does not pass through unnoticed.

deltalake commits and reads the log; what is added here, because it does neither: rows are appended exactly once
(``commits``), files and log entries are synced to disk and carry checksums that every reader verifies
(``data_files``, ``log_checks``), and files that no commit took are swept away (``sweep``).
"""

from __future__ import annotations

from streamstate.snapshots.delta.commits import append_once, commit_once, open_or_create, open_table
from streamstate.snapshots.delta.place import Place

__all__ = ["Place", "append_once", "commit_once", "open_or_create", "open_table"]

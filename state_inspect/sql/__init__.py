"""SQL over state: a read-only statement in which every relation is read at an epoch.

``delays`` (if there is one state table) and ``delays.op0_left`` are relations, and so are their ``.history`` and
``.changes``. ``VERSION AS OF 12`` and ``TIMESTAMP AS OF '…'`` choose the epoch of one relation.
"""

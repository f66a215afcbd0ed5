"""Shared variables: named values that operators share with each other and with the notebook, a version per epoch.

The idea is CAPSULE's (Losa, Kumar, Andrade, Gedik, Hirzel, Soulé and Wu, "CAPSULE: Language and System Support for
Efficient State Sharing in Distributed Stream Processing Systems", DEBS 2012). Here a version is bound to each epoch:

- ``shared_variable``: what notebooks and operators hold; ``declaration``, ``declared_types``, ``merge`` and
  ``named_merges`` describe a variable;
- ``version_log``: the versions, in a transport (``transports``: files, a driver's server, Redis);
- ``epoch_binding``: the source without rows, with an offset that binds an epoch; ``query_with_variables`` adds it;
- ``in_tasks``: reading and contributing in operators; ``contributions``: merging exactly once;
- ``recorded_versions``: the versions as rows of the store.
"""

"""Shedding: dropping rows by a level that is fixed within an epoch, with weights that keep sums and counts unbiased.

The level is a shared variable, so the offset log binds each epoch to one version of it, and whatever runs the epoch
again drops the same rows. Value intervals with a share each are the loss-tolerance graphs of Aurora (Carney et al.,
"Monitoring Streams", VLDB 2002) and Borealis (Tatbul et al., "Load Shedding in a Data Stream Manager", VLDB 2003); the
weights are those of Horvitz and Thompson (1952).

- ``level``: the shared variable of a query and its value; ``level_for`` makes a value, ``kept_predicate`` parses the
  predicate of the rows to keep;
- ``shed``: the filter, its weights and its counts; ``level_in_tasks`` reads the level of the epoch;
- ``bound_level``: declares the variable of a query that starts;
- ``estimates``: weighted sums, counts and means with their errors.
"""

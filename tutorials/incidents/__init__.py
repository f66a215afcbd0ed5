"""The incident room: something is wrong with a streaming query, and its state tells what.

A learner's name seeds one of six incidents. :mod:`queries` has the two queries as they were reviewed, and is there to
be read. The other modules have the answers.
"""

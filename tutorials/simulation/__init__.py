"""Simulations of protocols: states and actions, runs and graphs of them, and a player that shows them.

No Spark and no packages are needed. Three things are kept apart: a :class:`Protocol` knows its rules, a
:class:`Trace` or :class:`Graph` is what they make possible, and a :class:`Player` draws scenes without knowing
what they mean.
"""

from streamstate.tutorials.simulation.aligned import AlignedBarriers
from streamstate.tutorials.simulation.aligned_timeout import AlignedWithTimeout
from streamstate.tutorials.simulation.chandy_lamport import ChandyLamport
from streamstate.tutorials.simulation.dataflow import Dataflow
from streamstate.tutorials.simulation.graph import Graph, explore
from streamstate.tutorials.simulation.player import Player, Question
from streamstate.tutorials.simulation.protocol import Action, Protocol
from streamstate.tutorials.simulation.runs import Trace, Violation, replay, run, shrink
from streamstate.tutorials.simulation.scene import Scene
from streamstate.tutorials.simulation.stop_first import DrainFirst, PauseFirst
from streamstate.tutorials.simulation.topology import Topology
from streamstate.tutorials.simulation.unaligned import UnalignedBarriers

__all__ = [
    "Action",
    "AlignedBarriers",
    "AlignedWithTimeout",
    "ChandyLamport",
    "Dataflow",
    "DrainFirst",
    "Graph",
    "PauseFirst",
    "Player",
    "Protocol",
    "Question",
    "Scene",
    "Topology",
    "Trace",
    "UnalignedBarriers",
    "Violation",
    "explore",
    "replay",
    "run",
    "shrink",
]

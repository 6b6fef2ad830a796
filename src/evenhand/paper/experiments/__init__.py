"""The paper's experiments, from raw data to figure: ``evenhand reproduce NAME``.

``registry.py`` lists them. A module has the experiments of one shape: ``units`` says what is to be computed, piece
by piece, ``report`` makes tables and figures of the pieces, and ``running.py`` computes what is not there yet.
"""

from evenhand.paper.experiments.registry import EXPERIMENTS, Entry, find, reproduce
from evenhand.paper.experiments.settings import ImageSettings, Settings

__all__ = ["EXPERIMENTS", "Entry", "ImageSettings", "Settings", "find", "reproduce"]

"""Searches for z: each takes a :class:`Problem` and returns a :class:`Solution` for each step of its bounds."""

from evenhand.search.certified import Certified
from evenhand.search.directions import Directions
from evenhand.search.dual import Dual
from evenhand.search.lines import Lines
from evenhand.search.problem import NoRule, Problem, Search, Solution
from evenhand.search.smoothed import Smoothed

__all__ = ["Certified", "Directions", "Dual", "Lines", "NoRule", "Problem", "Search", "Smoothed", "Solution"]

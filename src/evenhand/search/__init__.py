"""Searches for z: each takes a :class:`Problem` and returns a :class:`Solution` for each step of its bounds."""

from evenhand.search.certified import Certified
from evenhand.search.problem import NoRule, Problem, Search, Solution

__all__ = ["Certified", "NoRule", "Problem", "Search", "Solution"]

"""Criteria, scores, rules, and how rules are learnt."""

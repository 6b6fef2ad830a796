"""Exports of rules and classifiers."""

"""Rules outside Python."""

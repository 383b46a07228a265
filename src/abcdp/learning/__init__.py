"""Summaries that are learned on a public bank."""

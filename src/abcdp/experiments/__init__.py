"""Mechanisms on public data with seeded noise."""

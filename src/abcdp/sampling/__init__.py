"""Exact samplers of integer noise."""

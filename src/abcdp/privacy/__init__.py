"""Whom a guarantee protects, what it promises, and the laws of noise."""

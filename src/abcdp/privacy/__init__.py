"""Whom a guarantee protects, what it promises, and the laws of noise."""

from abcdp.privacy import laws as laws  # makes the laws known, by the door that is everybody's

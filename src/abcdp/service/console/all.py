"""All pages of the console."""

from __future__ import annotations

from abcdp.service.console import datasets, people, requests, signing, trail

PAGES = (signing, datasets, requests, people, trail)

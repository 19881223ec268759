"""Publish the course as a site: `mgpu book`."""

from __future__ import annotations


class BookError(ValueError):
    """A site that cannot be made; the message is one sentence: what is wrong, where, what to do."""

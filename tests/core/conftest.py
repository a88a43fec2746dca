"""Clients of the tests share one TLS context; to load the certificates takes each 40 ms."""

from __future__ import annotations

import ssl
from functools import lru_cache

ssl.create_default_context = lru_cache(ssl.create_default_context)

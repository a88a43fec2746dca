"""For all tests: Ctrl-C works, as in a terminal, and CI draws the same examples every time.

A shell that starts a command in the background makes it ignore SIGINT, and so would every process
that the tests start and interrupt.
"""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
signal.signal(signal.SIGINT, signal.default_int_handler)

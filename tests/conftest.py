"""For all tests: Ctrl-C works, as in a terminal.

A shell that starts a command in the background makes it ignore SIGINT, and so would every process
that the tests start and interrupt.
"""

from __future__ import annotations

import signal

signal.signal(signal.SIGINT, signal.default_int_handler)

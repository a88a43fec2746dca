"""What hostile code tries. Each attack prints `ESCAPED …` where it got further than it may."""

from __future__ import annotations

from tests.sandbox.attacks_out import NETWORK, PRIVILEGE, SECRETS, SIGNALS
from tests.sandbox.attacks_within import EXHAUSTION, LIES, OUTPUTS, WRITING

ATTACKS = [*NETWORK, *EXHAUSTION, *SECRETS, *WRITING, *PRIVILEGE, *SIGNALS, *OUTPUTS, *LIES]

"""What hostile code tries. Each attack prints `ESCAPED …` where it got further than it may."""

from __future__ import annotations

from tests.sandbox.attack import Attack
from tests.sandbox.attacks_out import NETWORK, PRIVILEGE, SECRETS, SIGNALS
from tests.sandbox.attacks_within import EXHAUSTION, LIES, OUTPUTS, WRITING

ALL = [*NETWORK, *EXHAUSTION, *SECRETS, *WRITING, *PRIVILEGE, *SIGNALS, *OUTPUTS, *LIES]
ALONE = {"leaked_descriptors", "environment_of_every_process", "raising_own_limits"}
"""They look at what others leave behind, print much, or change what others meet."""


def is_quiet(attack: Attack) -> bool:
    """True if its code should run to the end, each step refused, and leave nothing."""
    return attack == Attack(attack.name, attack.code) and attack.name not in ALONE


ATTACKS = [attack for attack in ALL if not is_quiet(attack)]
for name, family in (
    ("network", NETWORK), ("secrets", SECRETS), ("writing", WRITING), ("privilege", PRIVILEGE),
    ("exhaustion", EXHAUSTION), ("signals", SIGNALS), ("outputs", OUTPUTS),
):  # fmt: skip
    ATTACKS += [Attack(f"{name}_together", "\n".join(a.code for a in family if is_quiet(a)))]

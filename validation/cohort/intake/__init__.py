"""From the files that people have to a `cohort.toml`; every guess shown and correctable."""

from __future__ import annotations

from validation.cohort.intake.proposal import Proposal, propose
from validation.cohort.intake.publish import publish

__all__ = ["Proposal", "propose", "publish"]

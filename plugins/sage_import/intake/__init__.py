"""Conversion of user files to a `cohort.toml`, with every guess shown and correctable."""

from __future__ import annotations

from sage_import.intake.proposal import Proposal, propose
from sage_import.intake.publish import publish

__all__ = ["Proposal", "propose", "publish"]

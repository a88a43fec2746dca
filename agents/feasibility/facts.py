"""The list of facts under way."""

from __future__ import annotations

from agents.feasibility.types import EvidenceItem, StepName


class FactList:
    """Numbers facts as they come."""

    def __init__(self) -> None:
        self.items: list[EvidenceItem] = []

    def add(
        self,
        step: StepName,
        check: str,
        statement: str,
        source: str,
        *,
        found: bool | None,
        share: float,
        value: float | None = None,
        unit: str | None = None,
        blocking: bool = False,
        remedy: str = "",
        adjust_for: tuple[str, ...] = (),
        url: str | None = None,
    ) -> None:
        """Add one fact; see `EvidenceItem`."""
        self.items.append(
            EvidenceItem(
                id=f"E{len(self.items) + 1}",
                step=step,
                check=check,
                statement=statement,
                source=source,
                found=found,
                share=min(1.0, max(0.0, share)),
                value=value,
                unit=unit,
                blocking=blocking,
                remedy=remedy,
                adjust_for=adjust_for,
                url=url,
            )
        )

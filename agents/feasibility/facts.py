"""The list of facts while it is gathered."""

from __future__ import annotations

from agents.feasibility.types import EvidenceItem, StepName


class FactList:
    """A list that numbers facts as they are added."""

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
        """Add a fact under the next ID (E1, E2 and so on).

        Parameters
        ----------
        found : whether the fact is true; None if the source could not be queried
        share : how well the check is met; clipped to [0, 1]
        value : the number that the statement rests on; None if there is none or it may not be shown
        remedy : what would fix the problem; empty if there is none
        """
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

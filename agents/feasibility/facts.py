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
        """Add a fact under the next id, E1, E2 and so on.

        Parameters
        ----------
        step : the step of the assessment that it belongs to
        check : name of the check; facts of the same name belong together
        statement : a sentence, with the numbers
        source : a dictionary, a registry, a service
        found : whether it is so; None where the source could not be asked
        share : how well the check is met; clipped to [0, 1]
        value : the number that the statement rests on; None where there is none, or it may not be
            shown
        unit : of `value`, such as "patients" or "hours"
        blocking : whether this fact alone can make the hypothesis infeasible
        remedy : what would mend it; empty where nothing has to be
        adjust_for : keys of the data dictionary that would mend it as covariates
        url : where the source can be looked up
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

"""The eyes there are, by name."""

from __future__ import annotations

from pathlib import Path

from agents.core.chat import ChatReasoner
from sage.core.errors import InputError
from sage_slide_reading.reader import computed, model
from sage_slide_reading.reader.eyes import Eyes, Navigator
from sage_slide_reading.reader.o3 import ModelRouter, Router, WordRouter
from sage_slide_reading.reader.rules import RulesExecutor


def computed_eyes(sight: computed.Sight | None = None) -> Eyes:
    """Return the embedded default: measurements and rules for a slide."""
    sight = sight or computed.Sight()
    return Eyes(
        name="computed",
        statement=computed.STATEMENT,
        navigator=computed.ComputedNavigator(sight),
        perceptor=computed.ComputedPerceptor(sight),
        executor=RulesExecutor(),
    )


def clip_eyes(weights: Path, device: str = "cpu") -> Eyes:
    """Let a CLIP-type model navigate; measurements describe, rules decide."""
    from sage_slide_reading.reader.clip import ClipNavigator

    return Eyes(
        name="clip",
        statement=f"A CLIP-type model ({weights.name}) ranks patches. {computed.STATEMENT}",
        navigator=ClipNavigator(weights, device),
        perceptor=computed.ComputedPerceptor(computed.Sight()),
        executor=RulesExecutor(),
    )


def model_eyes(reasoner: ChatReasoner, weights: Path | None = None, device: str = "cpu") -> Eyes:
    """Let a vision-language model describe and a language model decide.

    Patches are ranked by a CLIP-type model where there are weights, else by measurements.

    Raises
    ------
    InputError
        If the settings do not say that the model can see.
    """
    if not reasoner.settings.vision:
        raise InputError(
            "--eyes model needs a model that can see: name it as models.high and set vision = true"
            " at the top of sage.toml"
        )
    navigator: Navigator = computed.ComputedNavigator(computed.Sight())
    if weights is not None:
        from sage_slide_reading.reader.clip import ClipNavigator

        navigator = ClipNavigator(weights, device)
    return Eyes(
        name="model",
        statement=f"{model.STATEMENT} Patches were ranked by {navigator.name} relevance.",
        navigator=navigator,
        perceptor=model.ModelPerceptor(reasoner),
        executor=model.ModelExecutor(reasoner),
        in_parts=False,
    )


def router_of(eyes: Eyes) -> Router:
    """Chooser of a behavior: the model that decides, or words that the tasks share."""
    if isinstance(eyes.executor, model.ModelExecutor):
        return ModelRouter(eyes.executor.reasoner)
    return WordRouter()

"""The available eyes, by name."""

from __future__ import annotations

from pathlib import Path

from agents.core.chat import ChatReasoner
from sage.core.errors import InputError
from sage_slide_reading.reader import computed, model
from sage_slide_reading.reader.eyes import Eyes, Navigator
from sage_slide_reading.reader.o3 import ModelRouter, Router, WordRouter
from sage_slide_reading.reader.rules import RulesExecutor


def computed_eyes(sight: computed.Sight | None = None) -> Eyes:
    """Return the built-in default: measurements and rules for a slide."""
    sight = sight or computed.Sight()
    return Eyes(
        name="computed",
        statement=computed.STATEMENT,
        navigator=computed.ComputedNavigator(sight),
        perceptor=computed.ComputedPerceptor(sight),
        executor=RulesExecutor(),
    )


def clip_eyes(weights: Path, device: str = "cpu") -> Eyes:
    """Build eyes in which a CLIP-type model navigates, measurements describe, and rules decide."""
    from sage_slide_reading.reader.clip import ClipNavigator

    return Eyes(
        name="clip",
        statement=f"A CLIP-type model ({weights.name}) ranks patches. {computed.STATEMENT}",
        navigator=ClipNavigator(weights, device),
        perceptor=computed.ComputedPerceptor(computed.Sight()),
        executor=RulesExecutor(),
    )


def model_eyes(reasoner: ChatReasoner, weights: Path | None = None, device: str = "cpu") -> Eyes:
    """Build eyes in which a vision-language model describes and a language model decides.

    Patches are ranked by a CLIP-type model if weights are given, and by measurements otherwise.

    Raises
    ------
    InputError
        If the settings do not state that the model has vision.
    """
    if not reasoner.settings.vision:
        raise InputError(
            "--eyes model requires a model with vision: set models.high and vision = true at the "
            "top of sage.toml"
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
    """Return the router for these eyes: the deciding model, or matching of task words."""
    if isinstance(eyes.executor, model.ModelExecutor):
        return ModelRouter(eyes.executor.reasoner)
    return WordRouter()

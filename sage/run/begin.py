"""Starting a new run, or opening an existing one."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from agents.question.types import Question
from sage import settings as settings_module
from sage.core import clock, egress
from sage.core.errors import InputError
from sage.core.extras import require_extra
from sage.core.hashes import hash_file
from sage.core.printable import one_line
from sage.core.versions import versions
from sage.run.folder import Manifest, RunFolder, find_run, new_id
from sage.run.measuring import measure_suite
from sage.run.questions import ask_question, read_contract, refuse
from sage.run.services import Services
from sage.run.spec import RunSpec
from sage.run.wiring import graph_path
from sage.settings import Settings
from validation.run.overlap import require_other_cohort

KEPT_SETTINGS = (
    "paths",
    "max_hops",
    "weights",
    "embedding_model",
    "drafts",
    "tournament",
    "novelty_threshold",
    "revisions",
    "coding_rounds",
    "min_count",
    "literature",
    "sandbox",
    "structured",
    "repairs",
)
"""Settings that a resumed run keeps from when it started."""


def begin(
    spec: RunSpec,
    settings: Settings,
    *,
    out: Path | None = None,
    progress: Callable[[str, int, int], None] = lambda stage, done, total: None,
    agree: Callable[[Question], None] | None = None,
) -> Services:
    """Check everything that can be checked before work starts, then create the run folder.

    Parameters
    ----------
    out : the run's folder; by default, a new folder in `settings.runs_dir`
    progress : called with the stage, steps done and total steps while a graph is built
    agree : called with the question's contract before anything runs; raises `InputError` to
        stop. By default, a question that cannot be answered or was only partly understood
        stops the run

    Raises
    ------
    InputError
        If the prompt is empty or cannot be answered on this cohort; if the graph, corpus or
        cohort is missing, unfit or about another disease; or if `out` is not empty.
    """
    spec = spec.resolve()
    rules = settings.effective_reasoner == "rules"
    agree = agree or partial(refuse, yes=spec.corrections.yes)
    require_extra("literature", "a run")
    if not rules:
        settings.require_model()
        require_extra("models", "a run with a language model")
    if spec.corpus and not spec.corpus.is_dir():
        raise InputError(f"corpus: {spec.corpus} is not a folder")
    root = (out or settings.runs_dir / new_id(spec.prompt)).resolve()
    if root.is_dir() and any(root.iterdir()):
        raise InputError(
            f"--out: {root} is not empty; choose another folder, or `sage resume` the run"
        )
    manifest = _draft_manifest(spec, settings, root, graph_path(spec.kg, settings, progress))
    services = Services(RunFolder(root), manifest, settings)
    with TemporaryDirectory() as place:
        _check(services, Path(place) / "defined")
        if rules:  # reading is free, so an unanswerable question leaves no folder
            agree(read_contract(services))
        _create_folder(services)
    question = ask_question(services)
    if not rules:
        try:
            agree(question)
        except InputError as error:
            services.folder.update(status="failed", problem=str(error)[:1000])
            raise
    return services


def _check(services: Services, measured: Path) -> None:
    """Load and check the run's inputs, and compute its measurements into the `measured` folder."""
    spec = services.spec
    _ = services.sandbox  # reports that none works here, and loads while the rest is checked
    if services.second_cohort is not None:
        require_other_cohort(services.cohort, services.second_cohort)
    if spec.measure:
        measure_suite(services.cohort, services.second_cohort, measured, spec.seed)
        services.defined = measured
        services.reload_cohorts()
    _ = services.reasoner  # reports a wrong key format or a missing price before work starts
    if not services.graph.n_nodes:
        raise InputError(f"--kg: {spec.kg} is an empty graph; build one with `sage kg build`")
    dictionary = services.dictionary
    services.manifest = services.manifest.model_copy(
        update={"cohort_title": dictionary.title, "simulated": dictionary.simulated}
    )


def _create_folder(services: Services) -> None:
    """Create the run folder and lock it for this process."""
    folder, measured = services.folder, services.defined
    folder.root.mkdir(parents=True, exist_ok=True)
    services.__post_init__()
    if measured.is_dir():
        shutil.copytree(measured, services.defined)
        services.reload_cohorts()
    folder.hold()
    folder.save(services.manifest)
    folder.event("run", prompt=services.spec.prompt, reasoner=services.manifest.reasoner)


def _draft_manifest(spec: RunSpec, settings: Settings, root: Path, kg: Path) -> Manifest:
    reasoner = settings.effective_reasoner
    models = {} if reasoner == "rules" else settings.models.model_dump()
    identity = str(uuid.uuid4())
    return Manifest(
        id=root.name,
        run_id=identity,
        thread=identity,
        place=str(root),
        spec=spec,
        created=clock.stamp(),
        reasoner=reasoner,
        models={role: models[role]["name"] for role in models},
        kg=str(kg),
        kg_hash=_hash_graph(kg),
        versions=versions(),
        settings=settings.model_dump(mode="json", include=set(KEPT_SETTINGS)),
        endpoint=settings.endpoint.address if reasoner == "chat" else "",
    )


def _hash_graph(path: Path) -> str:
    """Compute the SHA-256 of a GraphML file or of the file inside a graph folder."""
    if not path.is_dir():
        return hash_file(path)
    found = sorted(path.glob("*.graphml"))
    if not found:
        raise InputError(f"{path} contains no GraphML; build it with `sage kg build`")
    return hash_file(found[0])


def open_run(name: str) -> RunFolder:
    """Find a run by name in the configured runs folder."""
    return find_run(name, settings_module.load().runs_dir)


def reopen(name: str, budget_usd: float | None = None) -> Services:
    """Open and lock a run for this process, with the settings it started with.

    Raises
    ------
    InputError
        If another process has locked the run, one of its files was changed, its checkpoints
        were not copied along with the run, or its model endpoint is not set.
    """
    folder = open_run(name)
    folder.hold()
    manifest = folder.adopt()
    if budget_usd is not None and manifest.status != "finished":
        spec = manifest.spec.model_copy(update={"budget_usd": budget_usd})
        manifest = folder.update(spec=spec)
    settings = settings_module.load()
    if manifest.parent and not manifest.copied_thread and settings.checkpoint_url:
        raise InputError(
            f"{folder.root} is a copy of run {manifest.parent}, whose checkpoints in the database"
            " belong to the original; resume that run"
        )
    if manifest.endpoint not in ("", egress.OPENAI) and not settings.base_url:
        folder.release()
        raise InputError(
            f"the run started with the model endpoint {one_line(manifest.endpoint)}, but none is "
            "set now, so its prompts would go to OpenAI; set SAGE_BASE_URL, or base_url in "
            "sage.toml"
        )
    # A folder made by somebody else must not redirect prompts and keys.
    kept = {name: value for name, value in manifest.settings.items() if name in KEPT_SETTINGS}
    current = {name: getattr(settings, name) for name in Settings.model_fields}
    return Services(folder, manifest, Settings.model_validate({**current, **kept}))

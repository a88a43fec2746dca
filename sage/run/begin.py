"""Begins a run, or opens one that exists."""

from __future__ import annotations

import hashlib
import shutil
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from agents.core.types import History
from agents.question.agent import read_question
from agents.question.types import Question
from sage import settings as settings_module
from sage.core import clock
from sage.core.errors import InputError
from sage.core.extras import need
from sage.core.printable import one_line
from sage.core.versions import versions
from sage.run.asking import ask_question
from sage.run.folder import FORMAT, Manifest, RunFolder, find_run, new_id
from sage.run.measuring import FOLDER, measure_suite, with_defined
from sage.run.questions import Corrections, contract, question_input, refuse, settle
from sage.run.services import Services
from sage.run.wiring import graph_path, load_cohort
from sage.settings import Settings
from validation.core.dictionary import DataDictionary
from validation.run.overlap import require_other_cohort


@dataclass(frozen=True)
class Request:
    """What `sage run` was asked.

    `replicate` is a second cohort that may contradict a claim, `confirm` one that has to bear it
    out. `history` is what earlier rounds of `campaign` found. `measure` has the standard suite of
    measurements made on the cohort's maps first.
    """

    prompt: str
    kg: Path | None = None
    cohort: str = "demo"
    cohort_root: Path | None = None
    features: tuple[Path, ...] = ()
    replicate: str | None = None
    hypotheses: int = 1
    auto_approve: bool = False
    seed: int = 0
    budget_usd: float | None = None
    corpus: Path | None = None
    as_of: int | None = None
    history: History | None = None
    split: float | None = None
    confirm: str | None = None
    campaign: str = ""
    measure: bool = False
    out: Path | None = None
    corrections: Corrections = field(default_factory=Corrections)


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
    "sandbox",
    "structured",
    "repairs",
)


def begin(
    request: Request,
    settings: Settings,
    progress: Callable[[str, int, int], None],
    show: Callable[[Question], None] = lambda question: None,
) -> Services:
    """Check everything that can be checked before work starts, then create the run folder.

    Parameters
    ----------
    request, settings : what was asked, and with what
    progress : told how far the graph is
    show : shows the question's contract, before anything runs

    Raises
    ------
    InputError
        If the prompt is empty or cannot be answered on this cohort, the graph, corpus or cohort is
        missing, unfit or of another disease, or `out` is taken.
    """
    with TemporaryDirectory() as place:
        return _begin(request, settings, progress, show, Path(place) / FOLDER)


def _begin(
    request: Request,
    settings: Settings,
    progress: Callable[[str, int, int], None],
    show: Callable[[Question], None],
    defined: Path,
) -> Services:
    reasoner = settings.effective_reasoner
    if not request.prompt.strip():
        raise InputError('the prompt is empty; say what to look for, e.g. sage run "TLS and FABP5"')
    need("literature", "a run")
    if reasoner == "chat":
        need("models", "a run with a language model")
    cohort = load_cohort(request.cohort, settings, _root_of_files(request), _features(request))
    check_second(request.replicate, request.confirm, request.split)
    second = request.confirm or request.replicate
    other = load_cohort(second, settings) if second else None
    if other is not None:
        require_other_cohort(cohort, other)
    kg = graph_path(request.kg, settings, progress)
    if request.corpus and not request.corpus.is_dir():
        raise InputError(f"--corpus: {request.corpus.resolve()} is no folder")
    root = (request.out or settings.runs_dir / new_id(request.prompt)).resolve()
    if (root / "manifest.json").exists() or (root.is_dir() and any(root.iterdir())):
        raise InputError(f"--out: {root} is not empty; choose another, or `sage resume` the run")
    if request.measure:
        measure_suite(cohort, other, defined, request.seed)
        cohort = with_defined(cohort, defined)
    dictionary = cohort.dictionary()
    folder = RunFolder(root)
    manifest = _manifest(request, settings, folder, dictionary, kg)
    services = Services(folder, manifest, settings)
    _ = services.reasoner  # a wrong key format or a missing price is reported before work starts
    if not services.graph.n_nodes:
        raise InputError(f"--kg: {kg} is an empty graph; build one with `sage kg build`")
    corrections = request.corrections
    if reasoner == "rules":  # which costs nothing: what cannot be answered leaves no folder
        given = question_input(manifest.prompt, dictionary, services.graph)
        reading = read_question(given, services.resources)
        _agree(contract(given, reading, services.ontology, corrections), corrections, show)
    root.mkdir(parents=True, exist_ok=True)
    if defined.is_dir():
        shutil.copytree(defined, root / "outputs" / FOLDER)
        services.reload_cohorts()
    folder.hold()
    folder.save(manifest)
    folder.record.seal_manifest()
    folder.event("run", prompt=manifest.prompt, reasoner=reasoner)
    question = ask_question(services, corrections)
    if reasoner != "rules":
        try:
            _agree(question, corrections, show)
        except InputError as error:
            folder.update(status="failed", problem=str(error)[:1000])
            raise
    return services


def _manifest(
    request: Request,
    settings: Settings,
    folder: RunFolder,
    dictionary: DataDictionary,
    kg: Path,
) -> Manifest:
    """What a run was asked, with what, on what."""
    reasoner = settings.effective_reasoner
    models = settings.models.model_dump()
    identity = str(uuid.uuid4())
    second = request.confirm or request.replicate
    return Manifest(
        format=FORMAT,
        id=folder.id,
        run_id=identity,
        thread=identity,
        place=str(folder.root),
        prompt=request.prompt.strip(),
        created=clock.stamp(),
        reasoner=reasoner,
        models={role: models[role]["name"] for role in models} if reasoner == "chat" else {},
        cohort=_stable_name(request.cohort),
        cohort_root=_root_of_files(request),
        features=_features(request),
        cohort_title=dictionary.title,
        simulated=dictionary.simulated,
        replicate=_stable_name(second) if second else None,
        kg=str(kg),
        kg_hash=_hash_graph(kg),
        seed=request.seed,
        hypotheses=request.hypotheses,
        auto_approve=request.auto_approve,
        budget_usd=request.budget_usd,
        literature=settings.literature,
        corpus=str(request.corpus.resolve()) if request.corpus else "",
        as_of=request.as_of,
        history=request.history,
        split=request.split,
        confirms=request.confirm is not None,
        campaign=request.campaign or (folder.id if request.confirm else ""),
        versions=versions(),
        settings=settings.model_dump(mode="json", include=set(KEPT_SETTINGS)),
        endpoint=_address(settings.base_url) if reasoner == "chat" else "",
    )


def _root_of_files(request: Request) -> str | None:
    return str(request.cohort_root.resolve()) if request.cohort_root else None


def _features(request: Request) -> list[str]:
    return [str(path.resolve()) for path in request.features]


def check_second(replicate: str | None, confirm: str | None, split: float | None) -> None:
    """Refuse two ways to confirm a claim.

    Raises
    ------
    InputError
        With which of them to leave out.
    """
    if replicate and confirm:
        raise InputError("give --replicate or --confirm, not both: a claim has one second cohort")
    if split and confirm:
        raise InputError(
            "give --split or --confirm, not both: a claim is confirmed in held-back patients or in"
            " a second cohort"
        )


def _agree(question: Question, corrections: Corrections, show: Callable[[Question], None]) -> None:
    """Show the contract, refuse what cannot be answered, and let the asker agree."""
    show(question)
    refuse(question)
    settle(question, yes=corrections.yes)


def _stable_name(cohort: str) -> str:
    path = Path(cohort)
    return str(path.resolve()) if path.exists() else cohort


def _hash_graph(path: Path) -> str:
    """SHA-256 of the GraphML, or of the one inside a graph folder."""
    file = path
    if path.is_dir():
        found = sorted(path.glob("*.graphml"))
        if not found:
            raise InputError(f"{path} holds no GraphML; build it with `sage kg build`")
        file = found[0]
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def open_run(name: str) -> RunFolder:
    """A run by name, under the runs folder that settings give."""
    return find_run(name, settings_module.load().runs_dir)


def reopen(name: str, budget_usd: float | None = None) -> Services:
    """A run's services, with the settings that the run began with; the run is held from here on.

    Raises
    ------
    InputError
        If another process holds the run, a file of it was changed, its checkpoints stayed with the
        run that it was copied from, or its model endpoint is not set.
    """
    folder = open_run(name)
    folder.hold()
    manifest = folder.adopt()
    if budget_usd is not None:
        manifest = folder.update(budget_usd=budget_usd)
    settings = settings_module.load()
    if manifest.parent and not manifest.copied_thread and settings.checkpoint_url:
        raise InputError(
            f"{folder.root} is a copy of run {manifest.parent}, whose checkpoints in the database"
            " are the original's; go on there"
        )
    if manifest.endpoint and not settings.base_url:
        folder.release()
        raise InputError(
            f"the run began with the model endpoint {one_line(manifest.endpoint)}, and none is set"
            " now, so that its prompts would go to OpenAI; set SAGE_BASE_URL, or base_url in"
            " sage.toml"
        )
    # A folder that somebody else made must not send prompts and keys elsewhere.
    own = {name: value for name, value in manifest.settings.items() if name in KEPT_SETTINGS}
    kept = Settings.model_validate({**_plain(settings), **own})
    return Services(folder, manifest, kept.model_copy(update={"literature": manifest.literature}))


def _address(url: str | None) -> str:
    """An endpoint without what a URL may hold of secrets."""
    parts = urlsplit(url or "")
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _plain(settings: Settings) -> dict[str, object]:
    """Settings as values that validate again, secrets included."""
    return {name: getattr(settings, name) for name in Settings.model_fields}

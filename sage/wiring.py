"""From settings to working parts: reasoner, embedder, cohort, graph, literature, sandbox."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from agents.base import Reasoner, Role
from sage.core.errors import InputError
from sage.data import data_root
from sage.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents.feasibility import EvidenceClients
    from kg.embedding.embed import Embedder
    from kg.literature.search import Literature
    from mcp_servers.registry import ToolSpec
    from sage.machine.services import Services
    from sandbox.types import Sandbox
    from validation.cohort.cohort import Cohort
    from validation.ledger import Ledger


def make_reasoner(services: Services) -> Reasoner:
    """The reasoner that the run's manifest names."""
    if services.manifest.reasoner == "rules":
        from agents.reasoners.rules import RulesReasoner

        return RulesReasoner(services.resources)
    from agents.reasoners.cache import Meter, ReplyCache
    from agents.reasoners.chat import ChatReasoner, ChatSettings, ModelChoice

    settings = services.settings
    chat = ChatSettings(
        base_url=settings.base_url,
        api_key=settings.api_key,
        models={
            Role.NANO: ModelChoice(**settings.models.nano.model_dump()),
            Role.MINI: ModelChoice(**settings.models.mini.model_dump()),
            Role.HIGH: ModelChoice(**settings.models.high.model_dump()),
        },
        timeout_s=settings.timeout_s,
        retries=settings.retries,
        repairs=settings.repairs,
        structured=settings.structured,
        vision=settings.vision,
    )
    root = services.folder.root
    meter = Meter(root / "spending.jsonl", services.manifest.budget_usd)
    return ChatReasoner(
        chat, ReplyCache(root / "replies"), meter, lambda: services.patient_identifiers
    )


def make_embedder(settings: Settings) -> Embedder:
    """The embedding model that settings name."""
    from kg.embedding import embed

    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    cache = settings.cache_dir / "embeddings.sqlite"
    if settings.embedding_model == "default":
        return embed.default(cache)
    return embed.by_name(settings.embedding_model, cache)


def load_cohort(
    name: str, settings: Settings, root: str | None = None, features: Sequence[str] = ()
) -> Cohort:
    """A cohort by folder or built-in name; "demo" is the simulated demonstration cohort.

    `root` is where the files of its cohort.toml lie, when not beside it; `features` are tables of
    what tools computed on its slides.
    """
    from validation import cohort

    cache = settings.cache_dir / "cohorts"
    cache.mkdir(parents=True, exist_ok=True)
    folder = demo_cohort(settings) if name == "demo" else name
    found = cohort.load(folder, root=Path(root) if root else None, cache=cache)
    for path in features:
        found = found.with_features(Path(path))
    return found


def open_ledger(path: Path | None, settings: Settings) -> Ledger:
    """A folder's ledger over the store that settings name."""
    from validation.ledger import Ledger
    from validation.store import open_store

    return Ledger(path, open_store(settings.ledger.place))


DEMO_SEED = 7


def demo_cohort(settings: Settings) -> Path:
    """The simulated demonstration cohort, written into the cache on first use of its simulator."""
    from validation import simulate

    version = corpus_key(Path(simulate.__path__[0]))[:12]
    folder = settings.cache_dir / "cohorts" / f"demo-{DEMO_SEED}-{version}"
    if not (folder / "cohort.toml").is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        simulate.write_world(folder, seed=DEMO_SEED, slides=4)
    return folder


def corpus_key(folder: Path) -> str:
    """SHA-256 over the names and contents of a corpus folder's files."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            digest.update(path.name.encode())
            digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def demo_graph(settings: Settings, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """The graph of the demonstration corpus, built live and kept in the cache by content."""
    from kg.corpus.build import BuildOptions, build
    from kg.lexicon.ontology import Ontology

    corpus = data_root() / "corpus"
    ontology = data_root() / "ontology"
    key = corpus_key(corpus)[:12] + corpus_key(ontology)[:12]
    out = settings.cache_dir / "graphs" / f"corpus-{key}"
    build([corpus], out, BuildOptions(), Ontology.load(ontology), progress=progress)
    return out


def make_literature(services: Services) -> Literature:
    """Search over the run's corpus, and over the services when the run is online."""
    from kg.literature.local import LocalIndex
    from kg.literature.search import Literature

    corpus = Path(services.manifest.corpus)
    if not corpus.is_dir():
        raise InputError(f"the run's corpus {corpus} is gone; give it again with --corpus")
    local = LocalIndex.from_folder(corpus)
    cache = services.settings.cache_dir / "literature"
    if services.manifest.literature == "local":
        return Literature((), cache, local=local)
    from kg.literature.catalog import all_sources, retraction_source
    from kg.literature.expansion import expander

    email = services.settings.contact_email
    if not email:
        raise InputError(
            "online literature needs contact_email in sage.toml: the services ask for it"
        )
    return Literature(
        all_sources(email=email),
        cache,
        local=local,
        expand=expander(services.ontology),
        embed=services.embedder.embed,
        retractions=retraction_source(email=email),
    )


def make_sandbox(settings: Settings, *, compiled_by_sage: bool) -> Sandbox:
    """The sandbox that settings ask for, or the best one that works here."""
    import sandbox

    return sandbox.choose(
        settings.sandbox, compiled_by_sage=compiled_by_sage, runtime=settings.sandbox_runtime
    )


def tools(settings: Settings) -> list[ToolSpec]:
    """Every registered tool, the user's own included."""
    from mcp_servers import registry

    return list(
        registry.load(
            "all", tool_folders=[settings.user_tools] if settings.user_tools else ()
        ).all()
    )


def make_evidence(services: Services) -> EvidenceClients | None:
    """Outside registries for feasibility; none when the run is not online."""
    if services.manifest.literature == "local":
        return None
    from agents.evidence.clients import EvidenceClients as Clients

    return Clients(services.settings.cache_dir / "evidence")

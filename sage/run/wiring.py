"""Construction of components from settings: reasoner, cohort, graph, literature and more."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from agents.core.base import Role
from sage.core.data import data_root
from sage.core.errors import FaultError, InputError
from sage.core.extras import absent
from sage.core.files import lock_file
from sage.core.hashes import hash_file, hash_files, hash_text
from sage.core.log import logger
from sage.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agents.core.base import Reasoner
    from agents.core.chat import ChatReasoner
    from agents.core.disclosure import Withheld
    from agents.question.types import QuestionInput, Reading
    from kg.embedding.embed import Embedder
    from kg.graph.model import Graph
    from kg.lexicon.index import Lexicon
    from kg.lexicon.ontology import Ontology
    from kg.literature.rank import Embed
    from kg.literature.search import Literature
    from mcp_servers.spec import ToolSpec
    from sage.core.llm.trace import Trace
    from sandbox.types import Sandbox
    from validation.cohort.cohort import Cohort
    from validation.ledger.ledger import Ledger


log = logger(__name__)


def make_chat(
    settings: Settings,
    folder: Path,
    *,
    budget_usd: float | None,
    withheld: Withheld = frozenset,
    trace: Trace | None = None,
    stand_in: Reasoner | None = None,
    on_stand_in: Callable[[str], None] = lambda reason: None,
) -> ChatReasoner:
    """Make a reasoner with the settings' models that stores replies and spending in `folder`.

    Parameters
    ----------
    budget_usd : dollars that the run may spend; None for no limit
    withheld : texts that no prompt may contain
    stand_in, on_stand_in : see `ChatReasoner`
    """
    from agents.core.chat import ChatReasoner, ChatSettings
    from sage.core.llm.budget import Meter
    from sage.core.llm.cache import ReplyCache
    from sage.core.llm.client import Client

    models = {role: getattr(settings.models, role.value) for role in Role}
    chat = ChatSettings(models=models, repairs=settings.repairs, vision=settings.vision)
    meter = Meter(folder / "spending.jsonl", budget_usd)
    client = Client(settings.endpoint, meter, ReplyCache(folder / "replies"))
    return ChatReasoner(chat, client, withheld, trace, stand_in, on_stand_in)


def make_embedder(settings: Settings) -> Embedder:
    """Make the embedding model named in the settings."""
    from kg.embedding import embed

    settings.cache_dir.mkdir(parents=True, exist_ok=True)
    cache = settings.cache_dir / "embeddings.sqlite"
    if settings.embedding_model == "default":
        return embed.default(cache)
    return embed.by_name(settings.embedding_model, cache)


def load_cohort(
    name: str, settings: Settings, root: Path | None = None, features: Sequence[Path] = ()
) -> Cohort:
    """Load a cohort by folder or built-in name; "demo" is the simulated demonstration cohort.

    `root` is the folder with the files listed in its cohort.toml if they are not next to it;
    `features` are tables of values that tools computed on its slides.
    """
    from validation import cohort

    cache = settings.cache_dir / "cohorts"
    cache.mkdir(parents=True, exist_ok=True)
    folder = demo_cohort(settings) if name == "demo" else name
    found = cohort.load(folder, root=root, cache=cache)
    for path in features:
        found = found.with_features(path)
    return found


def open_ledger(path: Path | None, settings: Settings) -> Ledger:
    """Open a folder's ledger, backed by the configured store."""
    from validation.ledger.ledger import Ledger
    from validation.ledger.store import open_store

    return Ledger(path, open_store(settings.ledger.place))


DEMO_SEED = 7


def demo_cohort(settings: Settings) -> Path:
    """Return the simulated demonstration cohort, written to the cache on first use.

    It includes four slides if the packages that draw them are installed.
    """
    from validation import simulate

    version = _hash_folder(Path(simulate.__path__[0]))
    painted = not absent("slides")
    kind = "demo" if painted else "demo-without-slides"
    folder = settings.cache_dir / "cohorts" / f"{kind}-{DEMO_SEED}-{version}"

    def simulated() -> None:
        part = folder.with_name(f".{folder.name}.part")
        for left in (part, folder):
            shutil.rmtree(left, ignore_errors=True)
        simulate.write_world(part, seed=DEMO_SEED, slides=4 if painted else 0)
        part.rename(folder)

    _make_once(folder / "cohort.toml", simulated)
    return folder


def _make_once(last: Path, make: Callable[[], object]) -> None:
    """Let the first process that needs a shared folder create it while the others wait.

    `last` is the last file written to the folder.
    """
    if last.is_file():
        return
    with lock_file(last.parent.with_name(f".{last.parent.name}.lock")):
        if not last.is_file():
            make()


def _hash_folder(folder: Path) -> str:
    return hash_files(path for path in sorted(folder.iterdir()) if path.is_file())[:12]


def demo_graph(settings: Settings, progress: Callable[[str, int, int], None] | None = None) -> Path:
    """Build the demonstration graph once, cached by content, embedding model and code.

    Its notes are written in the ontology's own words, so the ontology alone reads them.
    """
    from kg.corpus.build import build
    from kg.corpus.build_report import BuildOptions
    from kg.corpus.places import REPORT

    corpus = data_root() / "corpus"
    ontology = data_root() / "ontology"
    options = BuildOptions(embedder=settings.embedding_model)
    model = hash_text(options.embedder, digits=12)
    key = _hash_folder(corpus) + _hash_folder(ontology) + model + _graph_code()
    out = settings.cache_dir / "graphs" / f"corpus-{key}"
    _make_once(
        out / REPORT,
        lambda: build([corpus], out, options, make_ontology(ontology), progress=progress),
    )
    return out


def _graph_code() -> str:
    """Return the first digits of the SHA-256 of the code that builds and reads graphs."""
    import kg

    return hash_files(sorted(Path(kg.__path__[0]).rglob("*.py")))[:12]


def open_graph(path: Path, settings: Settings, min_belief: float | None = None) -> Graph:
    """Open a view of a graph, caching the arrays of a GraphML file on first read.

    The cache is keyed by the file's content and SAGE's code.
    """
    from kg.graph.model import Graph

    if not path.is_file():
        return Graph.load(path, min_belief)
    kept = settings.cache_dir / "graphs" / f"file-{hash_file(path)[:24]}{_graph_code()}"
    with suppress(InputError):  # not there yet, or damaged
        return Graph.load(kept, min_belief)
    graph = Graph.load(path, 0.0)
    with suppress(FaultError, InputError):  # an unwritable cache only costs time
        graph.save_sidecar(kept)
    return graph.view(min_belief)


def make_ontology(folder: Path | None = None) -> Ontology:
    """Load the ontology in `folder`, or the ontology that ships with SAGE."""
    from kg.lexicon.ontology import Ontology

    return Ontology.load(folder or data_root() / "ontology")


def load_lexicons(paths: Sequence[Path] = ()) -> list[Lexicon]:
    """Load compiled lexicons, and after them the vocabulary that ships with SAGE."""
    from kg.lexicon.index import Lexicon

    return [Lexicon.load(path) for path in (*paths, data_root() / "vocabulary" / "names.lex")]


def graph_path(
    kg: Path | None,
    settings: Settings,
    progress: Callable[[str, int, int], None] | None = None,
) -> Path:
    """Return the path to the given graph or to the demonstration graph.

    Raises
    ------
    InputError
        If the given path does not exist.
    """
    path = kg.resolve() if kg else demo_graph(settings, progress)
    if not path.exists():
        raise InputError(
            f"--kg: {path} not found; build a graph with `sage kg build SOURCES --out DIR`"
        )
    return path


def question_reader(settings: Settings) -> Callable[[QuestionInput], Reading]:
    """Make a question parser for use outside runs, based on rules or the configured model."""
    from agents.question.agent import QUESTION

    reasoner = make_reasoner(settings)
    return lambda given: reasoner.ask(QUESTION, given).output


def make_reasoner(settings: Settings) -> Reasoner:
    """Make the configured reasoner for questions outside runs; replies go to the cache folder."""
    from agents.core.base import Resources
    from agents.core.rules import RulesReasoner

    rules = RulesReasoner(Resources(ontology=make_ontology()))
    if settings.effective_reasoner == "rules":
        return rules
    settings.require_model()
    place = settings.cache_dir / "questions"
    place.mkdir(parents=True, exist_ok=True)

    def warn(reason: str) -> None:
        log.warning("SAGE's rules stand in for the model", reason=reason)

    return make_chat(settings, place, budget_usd=None, stand_in=rules, on_stand_in=warn)


def make_literature(
    settings: Settings, corpus: Path, ontology: Ontology, embed: Embed | None
) -> Literature:
    """Make the search over a run's corpus and, if `embed` is given, over external services too.

    Parameters
    ----------
    embed : maps texts to unit vectors, (n, d), for the ranking; None keeps the search on this
        machine

    Raises
    ------
    InputError
        If the corpus is missing, or the services cannot be used because no contact address is
        set.
    """
    from kg.literature.local import LocalIndex
    from kg.literature.search import Literature

    if not corpus.is_dir():
        raise InputError(f"the run's corpus {corpus} was removed; restore it to continue")
    local = LocalIndex.from_folder(corpus)
    cache = settings.cache_dir / "literature"
    if embed is None:
        return Literature((), cache, local=local)
    from kg.literature.expansion import make_expander
    from kg.literature.services import make_retraction_sources, make_sources

    email = settings.contact_email
    if not email:
        raise InputError(
            "online literature requires contact_email in sage.toml, because the services require it"
        )
    return Literature(
        make_sources(settings.services, email),
        cache,
        local=local,
        expand=make_expander(ontology),
        embed=embed,
        retractions=make_retraction_sources(settings.services, email),
    )


def make_sandbox(settings: Settings, *, compiled_by_sage: bool) -> Sandbox:
    """Make the configured sandbox, or the best available on this machine."""
    import sandbox

    return sandbox.choose(
        settings.sandbox, compiled_by_sage=compiled_by_sage, runtime=settings.sandbox_runtime
    )


def tools(settings: Settings) -> list[ToolSpec]:
    """List the tools that measure slides, and the user's own tools."""
    from mcp_servers import registry

    folders = [settings.user_tools] if settings.user_tools else ()
    return list(registry.load("pathology", tool_folders=folders).all())

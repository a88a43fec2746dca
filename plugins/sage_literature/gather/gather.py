"""Gathering a corpus on a topic, in resumable steps: search, merge, screen, fetch, write."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from kg.literature.access import Access
from kg.literature.merge import merge
from kg.literature.rank import rank
from kg.literature.types import Query
from sage.core import clock
from sage.core.errors import InputError
from sage.core.files import write_bytes, write_text
from sage.core.http.client import Policy, ServiceClient
from sage.core.http.errors import ServiceError
from sage.core.http.runner import Runner
from sage.core.models import read_model
from sage.core.printable import count_noun
from sage_literature.gather.flow import write_flow
from sage_literature.gather.folder import DOCUMENTS, CorpusFolder
from sage_literature.gather.screening import find_objection, mark_retracted
from sage_literature.gather.texts import (
    FullText,
    FullTexts,
    RefusedText,
    file_name,
    license_name,
    markdown,
)
from sage_literature.gather.types import CatalogFlow, Change, Flow, Kept, LeftOut, Plan, Stage
from sage_literature.records import Catalog, Found, Page, Search
from sage_literature.sources.biorxiv import Biorxiv
from sage_literature.sources.europe_pmc import EuropePmcCatalog
from sage_literature.sources.openalex import OpenAlex
from sage_literature.sources.pubmed import MOST, PubMedCatalog
from sage_literature.sources.semantic_scholar import SemanticScholar

Progress = Callable[[str, int, int], None]
T = TypeVar("T")

PATIENT = Policy(
    attempts=6,
    deadline=300.0,
    attempt=90.0,
    backoff_max=20.0,
    longest_wait=120.0,
    patience=120.0,
    max_bytes=64 * 1024 * 1024,
)
"""Retry policy for gathering, which can wait longer than a search during a debate."""
CATALOGS = (PubMedCatalog, EuropePmcCatalog, Biorxiv, OpenAlex, SemanticScholar)
"""Catalogs, in descending order of the reliability of their publication types."""
_AT_ONCE = 6
_PAGES = 2_000


@dataclass(frozen=True)
class Services:
    """Access to the services used for gathering, and their retry policy."""

    access: Access
    email: str | None
    policy: Policy = PATIENT


def gather(
    root: Path, plan: Plan, query: Query, services: Services, progress: Progress | None = None
) -> Flow:
    """Gather papers on a topic into `root`; call again to resume after a stop.

    A catalog that fails is named in the result and queried again by the next call, while the
    other catalogs continue. A finished folder is left unchanged; use `update` to search
    again.

    Parameters
    ----------
    root : a new folder, or the folder of an earlier call with the same plan

    Returns
    -------
    The flow of records, which is also written to the folder.

    Raises
    ------
    InputError
        If the folder contains something else or another topic, or another process is
        gathering there.
    """
    folder = CorpusFolder(root)
    with folder.lock():
        before = folder.plan()
        if before is None:
            folder.set_plan(plan)
        elif before != plan:
            raise InputError(
                f"{root} was gathered with other settings ({_difference(before, plan)}); choose "
                "another folder, or repeat the earlier command to resume"
            )
        if not folder.round:
            folder.begin_round()
        if folder.is_finished and folder.is_complete():
            flow = read_model(root / "prisma.json", Flow)
            if not flow.missing and not flow.pending:
                return flow
        return _run(folder, plan, query, services, progress)


def update(
    root: Path, query_for: Callable[[str], Query], services: Services, progress: Progress | None
) -> Flow:
    """Add papers that are new since the last round, and remove retracted papers.

    The same searches are repeated, so that papers indexed late are also found; a paper stays
    in the corpus unless it was retracted.

    Raises
    ------
    InputError
        If the folder was not created by `gather`.
    """
    folder = CorpusFolder(root)
    plan = folder.plan() if folder.state.is_dir() else None
    if plan is None:
        raise InputError(
            f"{root} was not gathered by `sage literature gather`, so there is nothing to repeat"
        )
    with folder.lock():
        if folder.is_finished:
            folder.begin_round()
        return _run(folder, plan, query_for(plan.topic), services, progress)


def _difference(before: Plan, plan: Plan) -> str:
    records = {"most": "limit", "threshold": "relevance", "pdfs": "pdf"}
    return "; ".join(
        f"{records.get(name, name)}: {value} then, {getattr(plan, name)} now"
        for name, value in before
        if value != getattr(plan, name)
    )


def _run(
    folder: CorpusFolder,
    plan: Plan,
    query: Query,
    services: Services,
    progress: Progress | None,
) -> Flow:
    runner = Runner()
    try:
        work = _Gathering(folder, plan, query, services, progress or (lambda *_: None))
        return runner.run(work.run())
    finally:
        runner.close()


@dataclass
class _Gathering:
    folder: CorpusFolder
    plan: Plan
    query: Query
    services: Services
    report_progress: Progress
    notes: list[str] = field(default_factory=list)
    silent: dict[str, str] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)
    sought: int = 0

    async def run(self) -> Flow:
        self.client = ServiceClient(None, self.services.policy)
        try:
            return await self._gather_all()
        finally:
            await self.client.close()

    async def _gather_all(self) -> Flow:
        self.search = Search(self.query, self.plan.since)
        access, email = self.services.access, self.services.email
        asked: list[Catalog] = [catalog(access, email) for catalog in CATALOGS]
        self._taken: dict[str, tuple[int, int]] = {}
        flows = await _together([self._harvest(catalog) for catalog in asked])
        records = [found for catalog in asked for found in self.folder.records(catalog.name)]
        papers = merge(records)
        papers = merge(await self._check_preprints(papers, asked))
        papers = mark_retracted(await self._recheck_papers(papers, asked))
        wanted = self._screen(papers)
        await self._documents(wanted)
        return self._write_results(flows, len(records), papers, wanted)

    # -- searching -----------------------------------------------------------------------------

    async def _harvest(self, catalog: Catalog) -> CatalogFlow:
        """Read a catalog page by page to the end of its search or the plan's limit."""
        pages = self.folder.pages(catalog.name)
        resumed, problem = bool(pages), None
        while not self._complete(pages):
            at = pages[-1].next if pages else None
            try:
                page = await catalog.page(self.client, self.search, at)
            except ServiceError as error:
                # An earlier call's cursor may have expired: if a new search works, start over.
                again = await self._first_page(catalog) if resumed else None
                if again is None:
                    problem = error.reason
                    break
                page, pages = again, []
                self.folder.drop_pages(catalog.name)
            resumed = False
            room = self.plan.most - _count(pages)
            page = page.model_copy(update={"records": page.records[:room]})
            pages.append(page)
            self.folder.add_page(catalog.name, len(pages), page)
            total = min(page.total, self.plan.most)
            self._taken[catalog.name] = (min(_count(pages), total), total)
            done, expected = map(sum, zip(*self._taken.values(), strict=True))
            self.report_progress("searching", done, expected)
        total = pages[0].total if pages else 0
        notes = []
        if total > _count(pages) and problem is None:
            which = ", the most relevant" if catalog.ordered else ", in the catalog's own order"
            bound = "--limit"
            if _count(pages) >= MOST:
                bound = "PubMed returns no more"
            elif _count(pages) < self.plan.most:
                bound, which = "it returned no more", ""
            notes.append(f"{_count(pages):,} of {total:,} were read ({bound}){which}")
        return CatalogFlow(
            name=catalog.name,
            asked=catalog.expression(self.search),
            total=total,
            taken=_count(pages),
            unread=sum(page.unread for page in pages),
            problem=problem,
            notes=tuple(notes),
        )

    async def _first_page(self, catalog: Catalog) -> Page | None:
        try:
            return await catalog.page(self.client, self.search, None)
        except ServiceError:
            return None

    def _complete(self, pages: list[Page]) -> bool:
        """Check whether a search is at its end or limit; a cursor that does not advance ends it."""
        if not pages:
            return False
        last = pages[-1]
        around = len(pages) > 1 and last.next is not None and last.next == pages[-2].next
        return (
            last.next is None
            or around
            or not last.records
            or _count(pages) >= self.plan.most
            or len(pages) >= _PAGES
        )

    async def _check_preprints(self, papers: list[Found], asked: Sequence[Catalog]) -> list[Found]:
        """Return the papers, with preprints' withdrawal and journal status from their servers."""
        (server,) = (catalog for catalog in asked if isinstance(catalog, Biorxiv))
        known = self.folder.load_checked()
        preprints = [p for p in papers if p.preprint and "biorxiv" in p.sources and p.doi]
        failed: list[str] = []

        async def settle(paper: Found) -> None:
            try:
                known[paper.doi or ""] = settled = await server.check_status(self.client, paper)
            except ServiceError as problem:
                failed.append(problem.reason)
                return
            self.folder.save_checked(settled)

        await self._at_once(
            "checking preprints", settle, [p for p in preprints if p.doi not in known]
        )
        if failed:
            self.notes.append(
                f"not checked for withdrawal: {count_noun(len(failed), 'preprint')} ({failed[0]})"
            )
        return papers + [known[doi] for paper in preprints if (doi := paper.doi or "") in known]

    async def _recheck_papers(self, papers: list[Found], asked: Sequence[Catalog]) -> list[Found]:
        """During an update, look up by identifier the corpus papers that no search returned again.

        A search returns only the most relevant papers, but retractions of the others matter too.
        """
        if self.folder.round == 1:
            return papers
        (pubmed,) = (catalog for catalog in asked if isinstance(catalog, PubMedCatalog))
        seen = {
            key
            for catalog in asked
            for page in self.folder.pages(catalog.name)
            for found in page.records
            for key in found.identities()
        }
        unseen = [
            paper
            for paper in papers
            if (kept := self.folder.find(paper)) is not None
            and kept.file is not None
            and not seen.intersection(paper.identities())
        ]
        numbers = [paper.pmid for paper in unseen if paper.pmid]
        again: list[Found] = []
        try:
            for start in range(0, len(numbers), 200):
                batch = numbers[start : start + 200]
                again += await pubmed.by_pmid(self.client, batch)
            if not self.services.access.key("openalex"):
                if without := sum(paper.pmid is None for paper in unseen):
                    self.notes.append(
                        f"not checked for retraction: {count_noun(without, 'paper')} without a "
                        "PMID that no search found again (OpenAlex would check, with a key)"
                    )
            else:
                marker = OpenAlex(self.services.access, self.services.email)
                for start in range(0, len(unseen), 50):
                    marked = await marker.mark(self.client, unseen[start : start + 50])
                    again += [found for found in marked if isinstance(found, Found)]
        except ServiceError as problem:
            self.notes.append(
                f"not checked for retraction: {count_noun(len(unseen), 'paper')} in the corpus "
                f"({problem})"
            )
        return merge([*papers, *again])

    # -- screening -----------------------------------------------------------------------------

    def _screen(self, papers: list[Found]) -> list[Found]:
        """Return the papers to keep, and record the others with reasons for exclusion."""
        kept: list[Found] = []
        for paper in papers:
            reason = find_objection(paper, self.query, self.plan)
            held = self.folder.find(paper)
            if held is not None and held.file is not None and not paper.retracted:
                reason = None  # papers in the corpus stay until they are retracted
            if reason is None:
                kept.append(paper)
                continue
            self._leave_out(paper, "screening", reason)
            if held is not None and held.file is not None:
                self._take_out(paper, held, reason)
        return self._limit_papers(kept)

    def _limit_papers(self, kept: list[Found]) -> list[Found]:
        if len(kept) <= self.plan.most:
            return kept
        held = [p for p in kept if (k := self.folder.find(p)) is not None and k.file is not None]
        inside = {id(paper) for paper in held}
        new = [paper for paper in kept if id(paper) not in inside]
        room = max(0, self.plan.most - len(held))
        best = rank(new, [self.query], room)
        chosen = {tuple(paper.identities()) for paper in best}
        for paper in new:
            if tuple(paper.identities()) in chosen:
                held.append(paper)
            else:
                reason = f"beyond the {self.plan.most} of --limit, by lexical rank"
                self._leave_out(paper, "screening", reason)
        return held

    def _leave_out(self, paper: Found, stage: Stage, reason: str) -> None:
        self.left_out.append(
            LeftOut(
                title=paper.title,
                year=paper.year,
                keys=_list_keys(paper),
                sources=paper.sources,
                stage=stage,
                reason=reason,
            )
        )

    def _take_out(self, paper: Found, held: Kept, reason: str) -> None:
        self.folder.change(
            Change(what="retracted", title=paper.title, keys=_list_keys(paper), why=reason)
        )
        self.folder.remove(held, retracted=True)

    # -- documents -----------------------------------------------------------------------------

    async def _documents(self, wanted: list[Found]) -> None:
        """Write a file per paper: the open full text if available, or title and abstract."""
        texts = FullTexts(self.client, self.services.access, self.services.email, self.folder.state)
        for paper in wanted:
            self.folder.merge_files(paper)
        self.sought = sum(bool(texts.places(paper, pdfs=self.plan.pdfs)) for paper in wanted)
        for pdfs in (False, True):  # PDFs last
            if pdfs and not self.plan.pdfs:
                break

            async def document(paper: Found, pdfs: bool = pdfs) -> None:
                await self._document(paper, texts, pdfs=pdfs)

            stage = "PDFs" if pdfs else "full texts"
            due = [paper for paper in wanted if self._due(paper, texts, pdfs=pdfs)]
            await self._at_once(stage, document, due)
        for paper in list(wanted):
            held = self.folder.find(paper)
            if held is None or held.file is None:
                wanted.remove(paper)
                reason = "no abstract, and no full text available"
                if held is not None and held.retracted:
                    reason = f"retracted (says {held.source})"
                self._leave_out(paper, "full text", reason)

    def _due(self, paper: Found, texts: FullTexts, *, pdfs: bool) -> bool:
        held = self.folder.find(paper)
        if held is None:
            return True
        if held.text == "full text" or held.retracted:
            return False
        return held.pending or bool(self._list_untried(paper, held, texts, pdfs=pdfs))

    def _list_untried(
        self, paper: Found, held: Kept | None, texts: FullTexts, *, pdfs: bool
    ) -> list[str]:
        tried = held.tried if held else {}
        return [p for p in texts.places(paper, pdfs=pdfs) if p not in tried]

    async def _document(self, paper: Found, texts: FullTexts, *, pdfs: bool) -> None:
        held = self.folder.find(paper)
        adopted = self._left_by_a_kill(paper, texts) if held is None else None
        text: FullText | RefusedText | None = adopted
        tried = dict(held.tried) if held else {}
        pending = False
        if text is None:
            for place in self._list_untried(paper, held, texts, pdfs=pdfs):
                text = await texts.fetch(paper, place)
                if isinstance(text, FullText):
                    break
                if text.final:
                    tried[place] = text.reason
                else:
                    self.silent[place] = text.reason
                    pending = True
        waits = pending and not isinstance(text, FullText)
        self._write(paper, held, text, tried, pending=waits)

    def _left_by_a_kill(self, paper: Found, texts: FullTexts) -> FullText | None:
        """Return a full text that a killed call wrote but did not record in the journal."""
        path = self._path(paper, ".xml")
        if not path.is_file():
            return None
        text = texts.check_reply(paper, "Europe PMC", path.read_bytes())
        return text if isinstance(text, FullText) else None

    def _path(self, paper: Found, suffix: str) -> Path:
        return self.folder.root / DOCUMENTS / f"{file_name(paper)}{suffix}"

    def _write(
        self,
        paper: Found,
        held: Kept | None,
        text: FullText | RefusedText | None,
        tried: dict[str, str],
        *,
        pending: bool,
    ) -> None:
        """Write a paper's file and record it in the journal, then remove the replaced file."""
        new = self.folder.round > 1 and (held is None or held.file is None)
        full = text if isinstance(text, FullText) else None
        retracted = full is not None and full.document is not None and full.document.retracted
        path, source, license_ = None, "", license_name(paper.license)
        if full is not None and retracted:
            source, new = f"{full.source}'s full text", False
        elif full is not None:
            source, license_ = full.source, full.license
            if full.xml is not None:
                path = self._path(paper, ".xml")
                write_bytes(path, full.xml)
            else:
                path = self._path(paper, ".md")
                write_text(path, markdown(paper, license_, full.document))
        elif paper.abstract:
            path, source = self._path(paper, ".md"), "/".join(paper.sources)
            write_text(path, markdown(paper, license_))
        file = str(path.relative_to(self.folder.root)) if path is not None else None
        if new and file is not None:
            self.folder.change(Change(what="new", title=paper.title, keys=_list_keys(paper)))
        if retracted and held is not None and held.file is not None:
            why = f"retracted (says {source})"
            self.folder.change(
                Change(what="retracted", title=paper.title, keys=_list_keys(paper), why=why)
            )
        self.folder.keep(
            Kept(
                keys=tuple(dict.fromkeys((*_list_keys(paper), *(held.keys if held else ())))),
                title=paper.title,
                file=file,
                text="full text" if full and file else "abstract" if file else "none",
                source=source,
                license=license_,
                tried=tried,
                pending=pending,
                retracted=retracted,
            )
        )
        if held is not None and held.file is not None and held.file != file:
            (self.folder.root / held.file).unlink(missing_ok=True)

    async def _at_once(
        self, stage: str, work: Callable[[Found], Awaitable[None]], papers: Sequence[Found]
    ) -> None:
        """Process several papers concurrently, at a speed set by the services' rate limits."""
        gate, done = asyncio.Semaphore(_AT_ONCE), 0

        async def process(paper: Found) -> None:
            nonlocal done
            async with gate:
                await work(paper)
            done += 1
            self.report_progress(stage, done, len(papers))

        await _together([process(paper) for paper in papers])

    # -- results -------------------------------------------------------------------------------

    def _write_results(
        self,
        flows: Sequence[CatalogFlow],
        identified: int,
        papers: list[Found],
        wanted: list[Found],
    ) -> Flow:
        rows = [(paper, kept) for paper in wanted if (kept := self.folder.find(paper)) is not None]
        by_stage: dict[str, Counter[str]] = {"screening": Counter(), "full text": Counter()}
        for left in self.left_out:
            by_stage[left.stage][left.reason.split(" (")[0]] += 1
        full = [kept for _, kept in rows if kept.text == "full text"]
        places = Counter(k.source if not k.source.startswith("http") else "PDF" for k in full)
        day = clock.now().date().isoformat()
        flow = Flow(
            plan=self.plan,
            concepts=self.query.groups(),
            round=self.folder.round,
            date=day,
            catalogs=tuple(flows),
            identified=identified,
            duplicates=identified - len(papers),
            screened=len(papers),
            left_out={stage: dict(counts.most_common()) for stage, counts in by_stage.items()},
            sought=self.sought,
            retrieved=len(full),
            included=len(rows),
            abstracts=len(rows) - len(full),
            texts=dict(places.most_common()),
            licenses=dict(Counter(kept.license for kept in full).most_common()),
            pending=sum(kept.pending for _, kept in rows if kept.text != "full text"),
            notes=(
                *self.notes,
                *(f"{p} did not return every full text: {why}" for p, why in self.silent.items()),
            ),
            changes=tuple(self.folder.changes()),
        )
        write_flow(self.folder.root, flow, rows, self.left_out)
        self.folder.finish_round()
        return flow


async def _together(work: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all results; the first failure cancels the remaining work and is raised."""
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(process) for process in work]
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
    return [task.result() for task in tasks]


def _count(pages: Sequence[Page]) -> int:
    return sum(len(page.records) for page in pages)


def _list_keys(paper: Found) -> tuple[str, ...]:
    """Return a paper's identifiers, or its title if it has no identifiers."""
    keys = paper.identities()
    return tuple(key for key in keys if not key.startswith("title:")) or tuple(keys)

"""Do scores of the past predict the edges of the future?

For each cut year the graph as it was is asked which of its unlinked pairs will be linked within the
horizon. What was linked stands against pairs that were not: random ones, ones at the same distance,
and ones with the same types and degrees at both ends. The learned model (`benchmarks.foresight`)
stands beside the classical link predictors and the four path scores of the SAGE paper, all with
intervals from resampling the pairs. Nothing after the cut is seen by any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from benchmarks.foresight.features import BASELINES, FEATURES
from benchmarks.foresight.model import HORIZON, Foresight
from benchmarks.foresight.pairs import Against, Ends, Window, negatives, window
from kg.embedding.embed import Embedder
from kg.graph.arrays import TYPES
from kg.graph.model import Graph
from kg.paths import scores
from kg.paths.build import Steps, write_sentences
from kg.paths.concepts import check_embedder
from kg.paths.find import PathOptions
from kg.paths.score import score_candidates
from kg.paths.search import Searcher
from sage.core.errors import InputError
from sage.core.models import Strict
from sage.core.seeds import generator

Floats = NDArray[np.float64]

LEARNED = "learned from the past"
PAPER = ("paper: Logic", "paper: Relevance", "paper: Novelty", "paper: Surprise", "paper: total")
_FEWEST = 10
_RATIO = 5
_ROUNDS = 200
_BINS = (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
_SPREAD_PAIRS = 20_000
TOP = 50


class Measure(Strict):
    """A value with a 95% interval from resampling linked and other pairs."""

    value: float
    low: float
    high: float


class ScoreRow(Strict):
    """One score against one kind of negatives; `cut` is None for the mean over the cuts.

    `auc`: area under the ROC curve, 0.5 is chance. `average_precision` and `hits` (share of the 50
    highest that were linked) depend on the number of negatives per linked pair.
    """

    cut: int | None
    against: Against
    score: str
    linked: int
    others: int
    auc: Measure
    average_precision: Measure
    hits: Measure


class Calibration(Strict):
    """What the ratios of a cut say of each pair once it is known how many links came.

    `seen`: how many came. `skill` of the Brier and of the log score over all unlinked pairs: 1 less
    the score over that of the base rate, so that 0 is what the number of links alone gives.
    """

    cut: int
    seen: int
    brier_skill: Measure
    log_skill: Measure


class RatioBin(Strict):
    """Pairs whose ratio lies in [low, high), over all cuts.

    `share` of the unlinked pairs; `expected`, how many of the links should be here by the ratios,
    given how many came in all, and `seen`, how many are.
    """

    low: float
    high: float | None
    share: float
    expected: float
    seen: Measure


class Classic(Strict):
    """A connection that was once foretold from the literature, asked as of the year before.

    `percentile`: share of random unlinked pairs that the model expects less of. `missing` says why
    there is no answer; `bridges` are what the graph then held between the two.
    """

    name: str
    year: int
    percentile: float | None = None
    linked_later: int | None = None
    bridges: tuple[str, ...] = ()
    missing: str = ""


class BacktestResult(Strict):
    """All scores at all cuts, their means, calibration, and the classics."""

    cuts: tuple[int, ...]
    horizon: int
    nodes: int
    edges: int
    rows: tuple[ScoreRow, ...]
    calibration: tuple[Calibration, ...]
    ratios: tuple[RatioBin, ...]
    classics: tuple[Classic, ...]
    notes: tuple[str, ...]

    def mean(self, score: str, against: Against) -> ScoreRow:
        """The row of the mean over the cuts."""
        return next(r for r in self.rows if (r.cut, r.score, r.against) == (None, score, against))


class BacktestOptions(Strict):
    """`cuts`: last years known. `paper_pairs`: linked pairs on which the paper's path scores are
    measured (0: not at all), by `paths_per_pair` paths, with as many others for each as elsewhere.
    """

    cuts: tuple[int, ...] = Field(min_length=1)
    horizon: int = Field(default=HORIZON, ge=1)
    paper_pairs: int = Field(default=60, ge=0)
    paths_per_pair: int = Field(default=5, ge=1)
    seed: int = Field(default=0, ge=0)


def backtest(
    graph: Graph,
    options: BacktestOptions,
    embedder: Embedder,
    *,
    domain: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> BacktestResult:
    """Every score at every cut against every kind of negatives.

    Parameters
    ----------
    graph : dated by its readings or edges
    embedder : for the paper's Logic and Relevance
    domain : what Relevance is measured against; None takes the mean of all node vectors

    Raises
    ------
    InputError
        If the graph has no years, or a cut leaves too little before or after it.
    """
    check_embedder(graph, embedder)
    say = progress or (lambda _: None)
    drawn: dict[tuple[str, Against], list[_Sample]] = {}
    calibrated: list[Calibration] = []
    spreads: list[_Spread] = []
    cuts = tuple(sorted(set(options.cuts)))
    windows = [_window(graph, cut, options.horizon) for cut in cuts]  # refusals before the work
    last = graph.stats().last_year or cuts[-1]
    notes = [
        f"{cut}: the graph ends in {last}, so the links of {last - cut} years after it are counted."
        for cut in cuts
        if last < cut + options.horizon
    ]
    for cut, seen in zip(cuts, windows, strict=True):
        say(f"{cut}: learning from the years before")
        model = Foresight.fit(graph, cut, horizon=options.horizon, seed=options.seed)
        others = {a: negatives(seen, a, _RATIO, options.seed) for a in Against}
        found = {"linked": seen.new, **{a.value: ends for a, ends in others.items()}}
        columns = {name: _simple_scores(model, ends) for name, ends in found.items()}
        for against in Against:
            for name in (LEARNED, *BASELINES):
                pair = columns["linked"][name], columns[against.value][name]
                drawn.setdefault((name, against), []).append(_Sample(cut, *pair))
        spread = _spread(model, seen, options.seed)
        spreads.append(spread)
        calibrated.append(spread.calibration(options.seed))
        if options.paper_pairs:
            most = dict.fromkeys(found, options.paper_pairs * _RATIO)
            most["linked"] = options.paper_pairs
            paper = {}
            for name, ends in found.items():
                say(f"{cut}: scoring paths of {name} pairs")
                some = _some(ends, most[name], options)
                paper[name] = _paper_scores(seen.past, some, embedder, domain, options)
            for against in Against:
                for name in PAPER:
                    pair = paper["linked"][name], paper[against.value][name]
                    drawn.setdefault((name, against), []).append(_Sample(cut, *pair))
    if options.paper_pairs:
        notes.append(
            f"The paper's scores were measured on up to {options.paper_pairs} linked pairs per "
            "cut: their hits are not comparable with those of the others."
        )
    if options.paper_pairs and domain is None:
        notes.append("Relevance was measured to the mean of all nodes: no domain was given.")
    say("resampling")
    rows = [row for key, samples in drawn.items() for row in _rows(key, samples, options.seed)]
    say("asking the classics")
    classics = tuple(_classic(graph, *known, options) for known in CLASSICS)
    return BacktestResult(
        cuts=cuts,
        horizon=options.horizon,
        nodes=graph.n_nodes,
        edges=graph.n_edges,
        rows=tuple(rows),
        calibration=tuple(calibrated),
        ratios=tuple(_ratio_bins(spreads, options.seed)),
        classics=classics,
        notes=tuple(notes),
    )


def _window(graph: Graph, cut: int, horizon: int) -> Window:
    seen = window(graph, cut, horizon)
    if not seen.past.n_edges:
        span = graph.stats()
        if span.first_year is None:
            raise InputError(
                "no statement of the graph has a year: there is no past to learn from. Build it "
                "from papers with a year, or import dated relations (sage exchange import)."
            )
        raise InputError(
            f"the graph has no edge from {cut} or before (its years: {span.first_year} to "
            f"{span.last_year}). Choose a later --cut."
        )
    if len(seen.new) < _FEWEST:
        raise InputError(
            f"only {len(seen.new)} pairs known in {cut} were newly linked by {cut + horizon}; at "
            f"least {_FEWEST} are needed. Choose another --cut, or a larger corpus."
        )
    return seen


def _simple_scores(model: Foresight, ends: Ends) -> dict[str, Floats]:
    features = model.past.features(ends)
    found = {name: features[:, FEATURES.index(name)] for name in BASELINES}
    return {LEARNED: model.score(ends), **found}


def _some(ends: Ends, most: int, options: BacktestOptions) -> Ends:
    if len(ends) <= most:
        return ends
    rng = generator(options.seed, len(ends))
    chosen: Ends = ends[np.sort(rng.choice(len(ends), most, replace=False))]
    return chosen


# -- measures -------------------------------------------------------------------------------


class _Sample:
    """One score of linked and of other pairs at one cut."""

    def __init__(self, cut: int, linked: Floats, others: Floats) -> None:
        self.cut, self.linked, self.others = cut, linked, others

    def measures(self, linked: NDArray[np.int64], others: NDArray[np.int64]) -> Floats:
        """AUC, average precision and hits of resampled pairs, given by position."""
        value = np.concatenate([self.linked[linked], self.others[others]])
        label = np.arange(len(value)) < len(linked)
        return np.array([auc(value, label), *average_precision_and_hits(value, label)])

    def whole(self) -> Floats:
        return self.measures(np.arange(len(self.linked)), np.arange(len(self.others)))

    def resampled(self, seed: int) -> Floats:
        """(rounds, 3) measures of pairs drawn with replacement, linked and others apart."""
        rng = generator(seed, self.cut)
        yes, no = len(self.linked), len(self.others)
        return np.array(
            [
                self.measures(rng.integers(0, yes, yes), rng.integers(0, no, no))
                for _ in range(_ROUNDS)
            ]
        )


def auc(score: Floats, label: NDArray[np.bool_]) -> float:
    """Area under the ROC curve by ranks (Mann-Whitney), ties counted half."""
    from scipy.stats import rankdata

    positives = int(label.sum())
    others = len(label) - positives
    if not positives or not others:
        return 0.5
    ranks = rankdata(score)[label].sum()
    return float((ranks - positives * (positives + 1) / 2) / (positives * others))


def average_precision_and_hits(score: Floats, label: NDArray[np.bool_]) -> tuple[float, float]:
    """Mean precision at the linked pairs, and the share linked of the highest 50.

    Equal scores share what they hold: each counts as linked to the degree that its ties are.
    """
    order = np.argsort(-score, kind="stable")
    value, held = score[order], label[order].astype(np.float64)
    start = np.flatnonzero(np.concatenate([[True], value[1:] != value[:-1]]))
    size = np.diff(np.concatenate([start, [len(value)]]))
    linked = np.add.reduceat(held, start)
    precision = np.cumsum(linked) / np.cumsum(size)
    average = float((precision * linked).sum() / max(linked.sum(), 1.0))
    share = np.repeat(linked / size, size)
    return average, float(share[:TOP].mean())


def _rows(key: tuple[str, Against], samples: Sequence[_Sample], seed: int) -> list[ScoreRow]:
    name, against = key
    wholes = [sample.whole() for sample in samples]
    drawn = [sample.resampled(seed) for sample in samples]
    mean = (None, samples, np.mean(wholes, axis=0), np.mean(drawn, axis=0))
    single = [
        (sample.cut, [sample], whole, rounds)
        for sample, whole, rounds in zip(samples, wholes, drawn, strict=True)
    ]
    found = []
    for cut, held, whole, rounds in (*single, mean):
        low, high = np.quantile(rounds, [0.025, 0.975], axis=0)
        measures = [
            Measure(value=float(whole[m]), low=float(low[m]), high=float(high[m])) for m in range(3)
        ]
        found.append(
            ScoreRow(
                cut=cut,
                against=against,
                score=name,
                linked=sum(len(sample.linked) for sample in held),
                others=sum(len(sample.others) for sample in held),
                auc=measures[0],
                average_precision=measures[1],
                hits=measures[2],
            )
        )
    return found


@dataclass(frozen=True)
class _Spread:
    """Ratios of the pairs that one window linked, and of random pairs that it did not.

    Each of `others` stands for `weight` unlinked pairs.
    """

    cut: int
    linked: Floats
    others: Floats
    weight: float

    def calibration(self, seed: int) -> Calibration:
        """Skill given the number of links, with intervals from pairs drawn with replacement."""
        rng = generator(seed, self.cut)
        rounds = [
            _skills(
                rng.choice(self.linked, len(self.linked)),
                rng.choice(self.others, len(self.others)),
                self.weight,
            )
            for _ in range(_ROUNDS)
        ]
        low, high = np.quantile(rounds, [0.025, 0.975], axis=0)
        whole = _skills(self.linked, self.others, self.weight)
        brier, log = (
            Measure(value=float(whole[n]), low=float(low[n]), high=float(high[n])) for n in (0, 1)
        )
        return Calibration(
            cut=self.cut, seen=len(self.linked), brier_skill=brier, log_skill=log
        )  # fmt: skip


def _skills(linked: Floats, others: Floats, weight: float) -> Floats:
    """Skill of the Brier and of the log score of ratios times the base rate."""
    every = len(linked) + weight * len(others)
    base = len(linked) / every
    level = base / ((linked.sum() + weight * others.sum()) / every)
    yes, no = (np.clip(level * ratio, 1e-9, 1 - 1e-9) for ratio in (linked, others))
    brier = (((1 - yes) ** 2).sum() + weight * (no**2).sum()) / every
    log = -(np.log(yes).sum() + weight * np.log1p(-no).sum()) / every
    of_base = -(base * np.log(base) + (1 - base) * np.log1p(-base))
    return np.array([1 - brier / (base * (1 - base)), 1 - log / of_base])


def _spread(model: Foresight, seen: Window, seed: int) -> _Spread:
    """Ratios at one cut; the tail of unlikely pairs that are linked after all asks for many."""
    each = max(_RATIO, -(-_SPREAD_PAIRS // len(seen.new)))
    others = model.outlook(negatives(seen, Against.RANDOM, each, seed)).ratio
    linked = model.outlook(seen.new).ratio
    weight = max(seen.linkable - len(linked), 1) / max(len(others), 1)
    return _Spread(seen.cut, linked, others, weight)


def _ratio_bins(spreads: Sequence[_Spread], seed: int) -> list[RatioBin]:
    """Links expected and seen by ratio, all cuts together; only bins with unlinked pairs."""
    rng = generator(seed, 0)
    found = []
    for low, high in zip(_BINS, (*_BINS[1:], np.inf), strict=True):
        inside = [(s.others >= low) & (s.others < high) for s in spreads]
        if not any(at.any() for at in inside):
            continue
        hit = [((s.linked >= low) & (s.linked < high)) for s in spreads]
        drawn = sum(rng.binomial(len(at), at.mean(), _ROUNDS) for at in hit)
        low_seen, high_seen = np.quantile(drawn, [0.025, 0.975])
        value = float(sum(at.sum() for at in hit))
        found.append(
            RatioBin(
                low=low,
                high=None if np.isinf(high) else high,
                share=float(np.mean([at.mean() for at in inside])),
                expected=float(
                    sum(
                        len(s.linked) * s.others[at].sum() / s.others.sum()
                        for s, at in zip(spreads, inside, strict=True)
                    )
                ),
                seen=Measure(value=value, low=float(low_seen), high=float(high_seen)),
            )
        )
    return found


# -- the paper's path scores ----------------------------------------------------------------


def _paper_scores(
    past: Graph, ends: Ends, embedder: Embedder, domain: str | None, options: BacktestOptions
) -> dict[str, Floats]:
    """Mean normalized scores of each pair's shortest paths; no path at all scores lowest."""
    search_as = PathOptions()
    indptr, indices = past.adjacency
    found = []
    for source, target in ends.tolist():
        search = Searcher(
            indptr,
            indices,
            np.array([target], dtype=np.int32),
            search_as.max_hops,
            hub_cap=search_as.hub_cap,
            budget=200_000,
        )
        found.append(search.shortest(source, options.paths_per_pair, min_hops=2).rows)
    counts = np.array([len(rows) for rows in found])
    if not counts.sum():
        return {name: np.zeros(len(ends)) for name in PAPER}
    rows = np.concatenate(found)
    owner = np.repeat(np.arange(len(ends)), counts)
    on_paths = np.unique(rows[rows >= 0])
    vectors = np.zeros((past.n_nodes, embedder.dimension))
    if past.vectors is not None:
        vectors[on_paths] = past.vectors[on_paths]
    else:
        vectors[on_paths] = embedder.embed([past.names[n] for n in on_paths.tolist()])
    center = embedder.embed([domain])[0] if domain else vectors[on_paths].mean(axis=0)
    center = center / max(float(np.linalg.norm(center)), 1e-12)
    distances = np.linalg.norm(vectors - center, axis=1)
    raw = score_candidates(rows, distances, past.degree, past.types, len(TYPES))
    texts = embedder.embed(write_sentences(past, Steps(past), rows))
    queries = embedder.embed([f"{past.names[a]} and {past.names[b]}" for a, b in ends.tolist()])
    cosine = np.einsum("nd,nd->n", texts.astype(np.float64), queries[owner].astype(np.float64))
    columns = (scores.clamp_logic(cosine), raw.relevance01, raw.novelty01, raw.surprise01)
    means = [
        np.where(
            counts > 0,
            np.bincount(owner, weights=column, minlength=len(ends)) / np.maximum(counts, 1),
            -1.0,
        )
        for column in columns
    ]
    total = np.stack(means, axis=1) @ np.array(scores.check_weights(search_as.weights))
    return dict(zip(PAPER, [*means, total], strict=True))


# -- the classics ---------------------------------------------------------------------------

#: Name, the two ends by the names that a graph may know them by, and the last year before the
#: connection was published. Each was drawn from literature that did not mention the two together.
CLASSICS: tuple[tuple[str, tuple[str, ...], tuple[str, ...], int], ...] = (
    ("fish oil, Raynaud's disease (Swanson 1986)",
     ("fish oils", "fish oil", "eicosapentaenoic acid"),
     ("Raynaud disease", "Raynaud's disease", "Raynaud phenomenon"), 1985),
    ("magnesium, migraine (Swanson 1988)", ("magnesium",),
     ("migraine disorders", "migraine"), 1987),
    ("arginine, somatomedin C (Swanson 1990)", ("arginine",),
     ("IGF1", "somatomedin C", "insulin-like growth factor I"), 1989),
    ("indomethacin, Alzheimer's disease (Smalheiser and Swanson 1996)", ("indomethacin",),
     ("Alzheimer disease", "Alzheimer's disease"), 1995),
    ("estrogen, Alzheimer's disease (Smalheiser and Swanson 1996)",
     ("estrogens", "estrogen", "estradiol"), ("Alzheimer disease", "Alzheimer's disease"), 1995),
    ("phospholipase A2, schizophrenia (Smalheiser and Swanson 1998)",
     ("PLA2G6", "phospholipase A2"), ("schizophrenia",), 1997),
    ("thalidomide, chronic hepatitis C (Weeber 2001)", ("thalidomide",),
     ("hepatitis C, chronic", "chronic hepatitis C", "hepatitis C"), 2000),
    ("chlorpromazine, cardiac hypertrophy (Wren 2004)", ("chlorpromazine",),
     ("cardiomegaly", "cardiac hypertrophy"), 2003),
    ("curcumin, retinal diseases (Srinivasan 2004)", ("curcumin",),
     ("retinal diseases", "retinopathy"), 2003),
)  # fmt: skip


def _classic(
    graph: Graph,
    name: str,
    one: tuple[str, ...],
    other: tuple[str, ...],
    year: int,
    options: BacktestOptions,
) -> Classic:
    """One connection asked of the graph as of the year before it was published."""
    blank = Classic(name=name, year=year)

    def without(reason: str) -> Classic:
        return blank.model_copy(update={"missing": reason})

    past = graph.as_of(year)
    ends = []
    for names in (one, other):
        place = next((n for each in names if (n := past.exact(each)) is not None), None)
        if place is None:
            late = any(graph.exact(each) is not None for each in names)
            return without(
                f"{names[0]}: no dated statement up to {year}"
                if late
                else f"{names[0]}: not in the graph"
            )
        ends.append(place)
    indptr, indices = past.adjacency
    near = [set(indices[indptr[n] : indptr[n + 1]].tolist()) for n in ends]
    if ends[1] in near[0]:
        return without(f"the graph links them already by {year}")
    later = [
        int(graph.first_year[edge])
        for h, t in ((0, 1), (1, 0))
        for edge in graph.edges_between(
            graph.position[past.ids[ends[h]]], graph.position[past.ids[ends[t]]]
        )
        if not graph.negated[edge] and graph.first_year[edge]
    ]
    bridges = tuple(past.names[n] for n in sorted(near[0] & near[1]))
    found = {"linked_later": min(later, default=None), "bridges": bridges}
    try:
        model = Foresight.fit(graph, year, horizon=options.horizon, seed=options.seed)
    except InputError:
        return without("too few dated links before to learn from").model_copy(update=found)
    place_of = model.past.graph.position
    asked = np.array([[place_of[past.ids[n]] for n in ends]], dtype=np.int64)
    percentile = float(model.outlook(asked).percentile[0])
    return blank.model_copy(update={**found, "percentile": percentile})


# -- the table ------------------------------------------------------------------------------


def markdown(found: BacktestResult) -> str:
    """The benchmark as text: means over the cuts per score, calibration, the classics."""
    lines = [
        f"{found.nodes:,} nodes, {found.edges:,} edges; cuts "
        f"{', '.join(map(str, found.cuts))}, links of the {found.horizon} years after; "
        f"{_RATIO} negatives per linked pair; means over the cuts (95% interval).",
        "",
        "| score | " + " | ".join(f"AUC, {a.value}" for a in Against)
        + f" | AP, {Against.DEGREE.value} | hits@{TOP}, {Against.DEGREE.value} |",
        "|---|" + "---|" * (len(Against) + 2),
    ]  # fmt: skip
    for name in (LEARNED, *BASELINES, *PAPER):
        if not any(row.score == name for row in found.rows):
            continue
        last = found.mean(name, Against.DEGREE)
        cells = [_said(found.mean(name, against).auc) for against in Against]
        cells += [_said(last.average_precision), _said(last.hits)]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "| cut | linked pairs | AUC of the learned score, degree-matched | random "
        "| Brier skill | log skill |",
        "|---" * 6 + "|",
    ]
    for row in found.calibration:
        at = {r.against: r for r in found.rows if r.cut == row.cut and r.score == LEARNED}
        lines.append(
            f"| {row.cut} | {at[Against.DEGREE].linked} | {_said(at[Against.DEGREE].auc)} | "
            f"{_said(at[Against.RANDOM].auc)} | {_said(row.brier_skill)} | {_said(row.log_skill)} |"
        )
    lines += [
        "",
        "| times as likely as the average | share of unlinked pairs | links expected "
        "| seen (95% interval) | a constant expects |",
        "|---" * 5 + "|",
    ]
    every = sum(row.seen for row in found.calibration)
    for held in found.ratios:
        name = f"{held.low:g} and more" if held.high is None else f"{held.low:g} to {held.high:g}"
        lines.append(
            f"| {name} | {held.share:.2%} | {held.expected:.1f} | {held.seen.value:.0f} "
            f"({held.seen.low:.0f}–{held.seen.high:.0f}) | {every * held.share:.1f} |"
        )
    lines += ["", "| classic | asked as of | answer |", "|---|---|---|"]
    for classic in found.classics:
        answer = classic.missing
        if classic.percentile is not None:
            answer = f"more plausible than {classic.percentile:.1%} of random unlinked pairs"
        if classic.linked_later:
            answer += f"; linked in {classic.linked_later}"
        if classic.bridges:
            answer += f"; between them: {', '.join(classic.bridges[:5])}"
        lines.append(f"| {classic.name} | {classic.year} | {answer} |")
    lines += ["", *found.notes]
    return "\n".join(lines).rstrip()


def _said(measure: Measure) -> str:
    return f"{measure.value:.3f} ({measure.low:.3f}–{measure.high:.3f})"

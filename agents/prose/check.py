"""Check sentences against typed facts; refuse what they do not support or what cannot be read.

A sentence about a result has to be made of plain words (`plain_words.txt`), of words of the given
data, and of claims (`claims.TABLE`) that the facts support. A clause denies by one word that
governs the claim; anything more involved is refused, because a reader may be led either way.
Sentences before any result (background, mechanism, debate, feasibility) use free words, but claim
nothing about the cohort's own result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agents.prose.claims import BE, CLAIM, TABLE, Claim
from agents.prose.facts import ResultFacts, TestFact
from agents.prose.identifiers import unknown_identifiers
from agents.prose.mood import FORETOLD, IMPERATIVE, Mood, mood_of
from agents.prose.reading import (
    MARKUP,
    WORD,
    Clause,
    clauses,
    disguise,
    sentences,
    word_set,
)

OWN = "(SAGE's own sentence: the model's was refused: {reason})"
LIGHT = word_set(
    "be been being is was were are am have has had do does did can could may might will would "
    "yet further to a an the any this that its it by itself shown found seen taken run "
    "clinical single of almost also even then external independent statistically highly "
    "relevant ever so far about show shows showed follows for"
)
TURNS = re.compile(
    r"\bnot (?:only|just|merely|simply|least|for nothing|that|until)\b|\bor not\b|"
    r"\bcan (?:not )?but\b|"
    r"\bno (?:longer|more|less|fewer)\b|\bmore or less\b|\brather than\b|\bnothing (?:but|less)\b|"
    r"\banything but\b"
)
AFTERWARDS = re.compile(
    r"^(?:can|could|was|were|is|are|has|have|will) not (?:be |been )?"
    r"(?:shown|tested|decided|seen|found|run|established|known)\b"
)
LEFT_OUT = re.compile(
    r"^(?:\w+ ){0,2}?(?:did|does|do|could|can) not (?:show|confirm|repeat|find|reach|bear|stand|"
    r"hold|"
    r"remain|survive)\b"
)
NOTHING_SHOWS = re.compile(
    r"^(?:here |in |of |from |this |these |that |the |our |present |cohort |data |study |analysis |"
    r"design |patients |results? |findings? )*(?:can |could |does |do )?(?:be )?(?:show|shown|"
    r"shows|"
    r"says?|t(?:ell|ells)|speaks?|follows?|points?|proves?|bears?)"
    r"(?: (?:for|of|to|that|about|on|as|an?|"
    r"the|"
    r"any|its|is|was|are|were|be|or|real|proven|shown))*$"
)
IN_SECOND = re.compile(r"\bin the second cohort\b")
BEFORE_ANY = re.compile(r"\bbefore (?:any|its|their|clinical)\b")
ASSUMED = re.compile(r"\b(?:taken to be|assumed|assumes?|assumption that|can not show)\b")
HOPED = re.compile(
    r"\b(?:was|were|is|are) (?:proposed|expected|hypothesized|claimed|conjectured|said) to\b|"
    r"\b(?:hypothesis|claim) (?:states|says|proposes|holds|expects) that\b|"
    r"\b(?:was|were) (?:proposed|expected)\b"
)
PREDICATE = re.compile(
    rf"\b(?:{CLAIM}|verdict|answer|markers?|biomarkers?|effects?|associations?|results?|findings?|"
    rf"signals?|comparison|exposures?|evidence|tests?|intervals?|curves?|"
    rf"direction) {BE} (not )?(?:also |now |still |then )?(\w+)"
)
PREDICATES = word_set(
    "that not about measured read cut continuous binary taken tested registered compared "
    "simulated adjusted restricted written stated proposed recorded known available expected "
    "given tried number of in on from by to computed joined derived defined grouped reported"
)
COMPARATIVES = word_set(
    "more fewer less higher lower longer shorter earlier later larger smaller greater better "
    "worse wider narrower most least"
)
COMPARED = re.compile(
    r"\b(?:exposed|unexposed|reference|than|groups?|rest|others|patients|those|they|expression|"
    r"density|markers?)\b"
)
PARTING = re.compile(r"\bcurves? (?!(?:of|shows?|were|was|are|is|with|for|in|by|from|number)\b)\w+")
SPEAKS = re.compile(
    rf"\b(?:we|cohorts?|data|patients|results?|findings?|analysis|tests?|it|this|they|what|that|"
    rf"{CLAIM}|"
    r"markers?|exposures?|expression|density|pathologists?|clinicians?|effects?)\b(?: \w+){0,3}? "
    r"(?:shows?|showed|shown|seen?|sees|uses?|used|gave|gives?|came|comes?|stands?|stood|makes?|"
    r"made|"
    r"marks?|marked|bears?|carry|carries|carried|speaks?|spoke|t(?:ells?|old)|follows?|followed|"
    r"goes|go|"
    r"went|fits?|matches|taken|keeps?|kept|gets?|turns?|turned|finds?|found|meets?|met|knows?|"
    r"known)\b"
)
GIVES = re.compile(
    r"\b(?:gave|gives?|given|had|has|shows?|showed|seen|found|was|were|is|are|"
    r"of) (?:\w+ ){0,6}?number\b|"
    r"\bknown positive\b|\btaken (?:to be|from)\b|\b(?:figures?|tables?|curves?|"
    r"slides?) (?:\w+ )?shows?\b|\bused to\b|\bcame from\b"
)
TESTED = re.compile(r"^primary$|\badjusted$|\bsecondary$|^replicate\.")
ABOUT_CLAIM = re.compile(rf"\b(?:{CLAIM}|verdict)\b")
OF_CLAIM = re.compile(
    r"\b(?:test|tests|tested|registered|written|stated|states|concerns?|about|rests?|refers?|part|"
    r"parts|carry|carries|asks?|names?|describes?|contract|set)\b"
)
EXPOSED = re.compile(
    r"\b(?:exposed|exposures?|markers?|biomarkers?|expression|density|signature|slides?|"
    r"pathologists?)\b"
)
OUTCOMES = re.compile(
    r"\b(?:death|deaths|died|die|dies|survival|survive|risk|risks|hazard|hazards|outcomes?|events?|"
    r"prognosis|recurrence|progression|mortality)\b"
)
HANDLED = re.compile(
    r"\b(?:measured|recorded|available|joined|registered|compared|missing|tested|assembled|"
    r"counted|number)\b"
)
OURS = re.compile(
    r"\b(?:th(?:is|e present|e studied|e given) (?:\w+ )?(?:cohort|study|analysis|run|work|"
    r"data set)|"
    r"our|ours|we|sage|here|these (?:\w+ )?(?:patients|data|results|findings|tumou?rs))\b"
)
OWN_RESULT = re.compile(
    r"\b(?:this|these|own)\b|"
    r"\b(?:hypothesis|claim|prediction|expectation|results?|analysis|data|findings?)\b"
)
ATTRIBUTED = re.compile(
    r"\b(?:r\d+|studies|stud(?:y|ies) (?:of|in|from)|one study|records?|papers?|authors?|"
    r"literature|sources?|"
    r"report(?:s|ed)?|reviews?|others|previous|retrieved|quoted|graph)\b"
)
RESULT_CLAIMS = frozenset(
    {
        "the verdict", "support", "confirmation", "refutation", "significance", "replication",
        "independence", "proportional hazards", "stability", "controls", "an effect",
        "an effect that was seen", "a worse outcome", "a better outcome", "error control",
        "the known positive",
    }
)  # fmt: skip
RECOMMENDS = re.compile(
    r"\b(?:we |is |are |be )?recommend\w*\b|\bshould (?:now )?(?:receive|be (?:treated|given|"
    r"offered))\b|"
    r"\b(?:should|must|ought to) (?:\w+ ){0,2}?(?:be used|inform|choose|select|replace|change|"
    r"decide|guide(?! (?:\w+ ){0,2}?(?:cells?|lymphocytes?|migration|traffic\w*)))\b|"
    r"\bready for (?:clinical )?(?:use|practice)\b|\b(?:fda|ema)\b|"
    r"\bno (?:limits?|limitations?|caveats?)\b|\b(?:limits?|limitations?) none\b|"
    r"\bbeyond (?:any )?doubt\b|\b(?:has|have|is|are|was|were) (?:now )?(?:been )?(?:proven|"
    r"undeniable)\b"
)


@dataclass(frozen=True)
class Problem:
    """Reason for refusing a sentence. `reason` holds none of the model's words, `quote` does."""

    sentence: str
    reason: str
    quote: str = ""

    def __str__(self) -> str:
        """For the model: the reason and the words concerned."""
        return f'"{self.sentence[:120]}": {self.reason}' + (
            f' ("{self.quote}")' if self.quote else ""
        )


Judge = Callable[[str], list[Problem]]
"""Holds a text against the facts: its refused sentences."""


def own_sentence(sentence: str, problems: Sequence[Problem]) -> str:
    """SAGE's own sentence in the place of refused ones, with the reasons why."""
    reasons = "; ".join(dict.fromkeys(problem.reason for problem in problems))
    return f"{sentence} {OWN.format(reason=reasons)}"


def without_reasons(text: str) -> str:
    """SAGE's own sentence without the note why it stands there."""
    return text.partition(f" {OWN.partition(':')[0]}:")[0]


def replace_refused(
    texts: Sequence[str], generated: Sequence[str], judge: Judge
) -> tuple[str, ...]:
    """Keep the texts that pass, and replace others by SAGE's own sentences while there are any.

    `generated` are SAGE's own sentences; those that a kept text repeats are not used again.
    """
    judged = [(text, judge(text)) for text in texts]
    kept = [text for text, problems in judged if not problems]
    refused = [problems for _, problems in judged if problems]
    if not refused:
        return tuple(texts)
    spare = [name for name in generated if name not in kept] or list(generated[:1])
    last = len(spare) - 1
    groups = [refused[at : at + 1] if at < last else refused[at:] for at in range(len(spare))]
    added = [
        own_sentence(sentence, [problem for problems in group for problem in problems])
        for sentence, group in zip(spare, groups, strict=True)
        if group
    ]
    return (*kept, *added)


def replace_text(text: str, generated: str, judge: Judge) -> str:
    """Return the text, or SAGE's own sentence if it is refused."""
    problems = judge(text)
    return own_sentence(generated, problems) if problems else text


def early_judge(
    given: Collection[str] = (),
    quotes: Collection[str] = (),
    refs: Collection[str] | None = None,
) -> Judge:
    """A judge of texts that were written before any result; see `check_before`.

    `quotes` may be repeated word for word in quotation marks.
    """

    def judge(text: str) -> list[Problem]:
        return check_before(without_quotations(text, quotes), given=given, refs=refs)

    return judge


SHORTEST_QUOTATION = 6
"""Fewest words of a quotation that is taken as such."""


def without_quotations(text: str, sources: Collection[str]) -> str:
    """Drop quotations that stand word for word in a source; any other is the writer's own prose.

    A quotation of a few words is the writer's too: any sentence can be pieced together of those.
    """
    known = [" ".join(source.split()).lower() for source in sources]

    def drop(found: re.Match[str]) -> str:
        inner = " ".join(found[1].split()).lower()
        long = len(inner.split()) >= SHORTEST_QUOTATION
        return " a quotation " if long and any(inner in name for name in known) else found[0]

    return re.sub(r"[“\"]([^”\"]*)[”\"]", drop, text)


@lru_cache(maxsize=1)
def plain_words() -> frozenset[str]:
    """The free words."""
    text = (Path(__file__).parent / "plain_words.txt").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return frozenset(word for word in re.split(r"[\s\-&]+", " ".join(lines).lower()) if word)


def words_of(texts: Iterable[str]) -> frozenset[str]:
    """The words of given data in lower case, as `check_result` may meet them."""
    return frozenset(
        word for text in texts for word in WORD.findall(text.lower().replace("-", " "))
    )


def check_result(
    text: str,
    facts: ResultFacts,
    names: frozenset[str] = frozenset(),
    quoted: Collection[str] = (),
    *,
    results_only: bool = False,
) -> list[Problem]:
    """Refused sentences of a text about the result."""
    given = {sentence for text in quoted for sentence in (text.strip(), *sentences(text))}
    if text.strip() in given:
        return []
    problems = _check_citations(text, (), None)
    for sentence in sentences(text):
        if sentence in given:
            continue
        found = _surface(sentence, names) or _result_problem(sentence, facts, names, results_only)
        if found is not None:
            problems.append(found)
    return problems


def check_before(
    text: str,
    given: Collection[str] = (),
    names: frozenset[str] = frozenset(),
    refs: Collection[str] | None = None,
) -> list[Problem]:
    """Refused sentences of a text that was written before any result, or is not about it.

    Parameters
    ----------
    refs : keys of the retrieved records; None where none were retrieved
    """
    problems = _check_citations(text, given, refs)
    for sentence in sentences(text):
        found = _surface(sentence, names, markup=False) or _early_problem(sentence)
        if found is not None:
            problems.append(found)
    return problems


KNOWN = re.compile(
    r"\b(?:(?:commonly|widely|generally|usually|long) (?:been )?(?:held|known|accepted|believed|"
    r"assumed|thought|recogni[sz]ed|agreed|studied|debated)|well[- ](?:known|established)|"
    r"(?:has|have) (?:long |often )?been (?:studied|known|debated|disputed)|"
    r"(?:is|are|remains?|still) (?:disputed|debated|controversial)|old question|textbook)\b",
    re.IGNORECASE,
)
SOURCED = re.compile(r"\bR\d{1,4}\b|\ba quotation\b|\bdoi\b|\bpmid\b", re.IGNORECASE)
LONGEST_SENTENCE = 1200
"""Characters; mechanisms list several processes."""


def _surface(sentence: str, names: frozenset[str], markup: bool = True) -> Problem | None:
    if len(sentence) > LONGEST_SENTENCE:
        return Problem(sentence, "it is too long for a sentence")
    hidden = disguise(sentence, names)
    if hidden:
        return Problem(sentence, f"it holds {hidden}")
    bare = re.sub(r"\[\[[^\]]*\]\]", " ", sentence)
    known = KNOWN.search(bare)
    if known is not None and not SOURCED.search(bare):
        return Problem(sentence, "it states what is known without a source", known.group())
    if markup and (found := MARKUP.search(bare)) is not None:
        return Problem(sentence, "it holds markup", found.group())
    if re.search(r"\bsage\W{0,2}s own\b", bare, re.IGNORECASE):
        return Problem(sentence, "it imitates SAGE's own words")
    if re.search(r"</?[a-z!]", bare, re.IGNORECASE):
        return Problem(sentence, "it holds markup")
    return None


def _check_citations(
    text: str, given: Collection[str], refs: Collection[str] | None
) -> list[Problem]:
    strange = unknown_identifiers(text, given, refs)
    return [Problem(text, "it cites what was not given", name) for name in strange[:1]]


def _early_problem(sentence: str) -> Problem | None:
    for clause in clauses(sentence):
        found = RECOMMENDS.search(clause.text)
        if found is not None and (
            not clause.negators or found.group().startswith(("no ", "beyond ", "limit"))
        ):
            return Problem(sentence, "it states what nothing here could show", found.group())
        ours = OURS.search(clause.text) is not None
        if ours and STATED.search(clause.text) and QUANTITY.search(clause.text):
            return Problem(sentence, "it states a number before anything was measured")
        again = SEEN_AGAIN.search(clause.text)
        if again is not None and not CITED.search(sentence) and not IF_SO.search(clause.text):
            return Problem(sentence, "it states replication without a source", again.group())
        if not ours and (not OWN_RESULT.search(clause.text) or ATTRIBUTED.search(sentence.lower())):
            continue
        open_question = IF_SO if ours else HYPOTHETICAL
        if clause.words[0] in IMPERATIVE or open_question.search(clause.text):
            continue
        for row in TABLE:
            found = row.pattern.search(clause.text) if row.name in RESULT_CLAIMS else None
            if (
                found is not None
                and (ours or STATED.search(clause.text))
                and not (row.name in WEAK and clause.negators)
            ):
                return Problem(
                    sentence, f"it states {row.name} before anything was measured", found.group()
                )
    return None


QUANTITY = re.compile(
    r"\b(?:hazard ratio|odds ratio|hr|p|p value|risk|survival|concordance)\b(?: \w+){0,4}? \d|"
    r"\b\d+ ?%"
)
SEEN_AGAIN = re.compile(
    r"\b(?:cohorts?|patients|series|hospitals?|centers?|data ?sets?|trials?|stud(?:y|ies)) "
    r"(?:\w+ ){0,5}?(?:gave|gives?|found|shows?|showed|saw|got|reached) the same\b|"
    r"\b(?:was|were|been|we) (?:\w+ )?(?:replicated|reproduced|validated)\b(?! (?:if|by whom))"
)
CITED = re.compile(r"\bR\d{1,4}\b")
HYPOTHETICAL = re.compile(
    r"\b(?:if|whether|would|could|may|might|should|must|plausibl[ey]|proposed|expected|to be|"
    r"needs?|"
    r"can|will|conjecture)\b"
)


STATED = re.compile(
    r"\b(?:this|our|these|we|sage|here|present|studied|given) (?:\w+ ){0,2}?(?:cohort|data|"
    r"patients|"
    r"results?|analysis|study|findings?|stud(?:y|ies)|found|show|confirm|validate|prove|replicate)|"
    r"\b(?:hypothesis|claim|prediction|expectation|results?) (?:\w+ ){0,3}?(?:is|was|has|have|been|"
    r"holds|held|stands|confirm\w*|prove\w*|support\w*|replicat\w*)|"
    r"\b(?:data|results?|analysis|findings?) (?:\w+ )?(?:confirm|prove|support|demonstrate|"
    r"validate|"
    r"establish|show|replicate|verify|corroborate|substantiate)\w*"
)


IF_SO = re.compile(
    r"\b(?:if|whether|may|might|could|should|must|proposed|expected|(?:to|can) be|needs?|"
    r"conjecture)\b"
)


WEAK = ("an effect", "a worse outcome", "a better outcome")


def _result_problem(
    sentence: str, facts: ResultFacts, names: frozenset[str], results_only: bool
) -> Problem | None:
    parts = clauses(sentence)
    if not parts:
        return None
    scopes = _scopes(parts, facts)
    states_a_result = False
    for clause in parts:
        turn = TURNS.search(clause.text)
        if turn is not None:
            return Problem(sentence, "it denies in a roundabout way; say it plainly", turn.group())
        covered: set[int] = set()
        mood = mood_of(clause, parts[0].words[0])
        for row in TABLE:
            for match in row.pattern.finditer(clause.text):
                start = len(clause.text[: match.start()].split())
                span = range(start, start + len(match.group().split()))
                covered.update(span)
                problem = _claim_problem(row, clause, span, facts, scopes, mood)
                if problem:
                    return Problem(sentence, problem, match.group())
        for at, word in enumerate(clause.words):
            if at not in covered and not _is_plain(word, names):
                return Problem(sentence, "it uses a word that no fact can be held against", word)
        if mood is Mood.STATED and (found := _unread(clause, covered, names)):
            return Problem(sentence, *found)
        states_a_result |= bool(covered) or bool(clause.keys)
    if results_only and not states_a_result:
        return Problem(sentence, "it states no result that a fact could support")
    return None


def _unread(clause: Clause, covered: set[int], names: frozenset[str]) -> tuple[str, str] | None:
    """Find a statement made by plain words together, which no row of the table covers."""
    for match in PREDICATE.finditer(clause.text):
        place = len(clause.text[: match.start(2)].split())
        if place not in covered and match[2] not in PREDICATES:
            return "it says of the claim what no fact can be held against", match.group()
    compared = [
        word for at, word in enumerate(clause.words) if at not in covered and word in COMPARATIVES
    ]
    if compared and COMPARED.search(clause.text):
        return "it makes a comparison that no fact can support", compared[0]
    parting = PARTING.search(clause.text)
    if parting is not None and not covered:
        return "it reads a curve in a way that no fact can support", parting.group()
    speaking = SPEAKS.search(clause.text)
    if speaking and not covered and not clause.negators and not GIVES.search(clause.text):
        return "it lets the data speak in a way that SAGE cannot check", speaking.group()
    foretold = FORETOLD.search(clause.text)
    if foretold is not None and not covered and not clause.negators:
        return "it foretells what was not measured", foretold.group()
    if covered or "number" in clause.words or HOPED.search(clause.text):
        return None
    if ABOUT_CLAIM.search(clause.text) and not OF_CLAIM.search(clause.text):
        return "it says of the claim what no fact can be held against", clause.text
    exposed = EXPOSED.search(clause.text) or (names - plain_words()) & set(clause.words)
    if exposed and OUTCOMES.search(clause.text) and not HANDLED.search(clause.text):
        return "it relates exposure and outcome in a way that SAGE cannot check", clause.text
    return None


def _claim_problem(
    row: Claim,
    clause: Clause,
    span: range,
    facts: ResultFacts,
    scopes: Sequence[TestFact],
    mood: Mood,
) -> str:
    """Reason why the claim may not be made; empty if it may."""
    if mood is Mood.OPEN:
        return "" if row.may_be_open(facts, scopes) else f"it leaves open {row.name}"
    if row.future and mood is Mood.TO_DO and not RECOMMENDS.search(clause.text):
        return ""
    if row.future and row.name == "use in patients" and BEFORE_ANY.search(clause.text):
        return ""
    if row.name in ("independence", "proportional hazards") and ASSUMED.search(clause.text):
        return ""
    if row.expected and HOPED.search(clause.text):
        return ""
    if row.name == "another cohort" and facts.second_cohort and IN_SECOND.search(clause.text):
        return ""
    denials = clause.negators
    if len(denials) > 1:
        return "it denies twice in one clause; say it plainly"
    if denials and denials[0] not in span and not _governs(clause, denials[0], span):
        return f"it is unclear whether it claims or denies {row.name}"
    says = row.denied if denials else row.asserted
    word = "denies" if denials else "claims"
    if row.settled_never:
        word = "mentions"
    if all(says(facts, test) for test in scopes):
        return ""
    return f"it {word} {row.name}, which the results do not support"


def _governs(clause: Clause, denial: int, span: range) -> bool:
    """True where the word of denial governs the claim and nothing else."""
    if denial < span.start:
        between = clause.words[denial + 1 : span.start]
        return all(word in LIGHT for word in between) or (
            NOTHING_SHOWS.match(" ".join(between)) is not None
        )
    after = " ".join(clause.words[span.stop :])
    return any(denial.match(after) for denial in (AFTERWARDS, LEFT_OUT))


def _scopes(parts: Sequence[Clause], facts: ResultFacts) -> list[TestFact]:
    """Find the tests that the sentence mentions; its numbers can only add to them."""
    text = " ".join(part.text for part in parts)
    spoken = [
        key
        for key, names in facts.endpoints.items()
        if any(re.search(rf"\b{re.escape(name)}\b", text) for name in names)
    ]
    primary = facts.primary_endpoint in spoken
    others = [key for key in spoken if key != facts.primary_endpoint]
    if not others and re.search(r"\bsecondary\b", text):
        others = [key for key in facts.endpoints if key != facts.primary_endpoint]
    adjusted = (
        re.search(r"\badjust(?:ed|ing|ment)\b|\bcovariates\b|\bbesides?\b|\bin the model\b", text)
        is not None
    )
    named = {f"{key}.{'adjusted' if adjusted else 'secondary'}" for key in others}
    if re.search(r"\bsecond cohort\b|\breplicat", text):
        named.add("replicate.primary")
    if primary or not named:
        named.add("adjusted" if adjusted else "primary")
    keys = [key.rpartition(".")[0] for key in parts[0].keys]
    named |= {key for key in keys if key in facts.tests and TESTED.search(key)}
    return [facts.test(name) for name in sorted(named)]


@lru_cache(maxsize=4096)
def _stems(word: str) -> tuple[str, ...]:
    found = [word]
    for ending in ("'s", "’s", "s", "es", "ed", "d", "ing"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            found.append(word.removesuffix(ending))
    return tuple(found)


def _is_plain(word: str, names: frozenset[str]) -> bool:
    free = plain_words()
    return word in names or any(stem in free or stem in names for stem in _stems(word))

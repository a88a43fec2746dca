"""Table of claims: the words of each, and the typed fact that supports it.

A claim is found by its words, then read as asserted or denied. `asserted` and `denied` say from
the facts whether that may be stated; a reading that is neither is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.prose.facts import ResultFacts, TestFact

Says = Callable[[ResultFacts, TestFact], bool]

EFFECT = r"(?:effect|association|difference|relation|relationship|correlation|signal|separation)s?"
BE = r"(?:is|was|are|were|be|been|being)"
CLAIM = r"(?:hypothesis|hypotheses|claims?|predictions?|expectations?|conjecture)"
CLOSER = r"(?:\w+ ){0,3}?"
SEEN = (
    r"(?:found|shown|seen|observed|detected|evident|real|present|visible|apparent|demonstrated|"
    r"clear)"
)


@dataclass(frozen=True)
class Claim:
    """A row of the table: the words, the claim, and when it may be stated.

    `future` claims may also stand where nothing is asserted: in "whether ...", "must be ...", "test
    ...". `expected` claims may be attributed to the hypothesis ("was expected to ...").
    """

    name: str
    words: str
    asserted: Says
    denied: Says
    future: bool = False
    expected: bool = False

    @property
    def settled_never(self) -> bool:
        """True where no fact could support either reading."""
        return self.asserted is _never and self.denied is _never

    def may_be_open(self, facts: ResultFacts, tests: Sequence[TestFact]) -> bool:
        """True where the facts neither bear the claim out nor deny it."""
        if self.name in CLOSED:
            return False
        if self.name == "an open verdict" or self.denied is _always:
            return True
        if self.name in ABOUT_VERDICT:
            return facts.verdict == "inconclusive"
        return not any(self.asserted(facts, test) or self.denied(facts, test) for test in tests)

    @property
    def pattern(self) -> re.Pattern[str]:
        """The compiled words."""
        return _compile(self.words)


CLOSED = frozenset(
    {"the absence of limits", "a question that is closed", "a verdict to be ignored"}
)
ABOUT_VERDICT = frozenset({"support", "confirmation", "refutation", "a decided question"})

_CACHE: dict[str, re.Pattern[str]] = {}


def _compile(words: str) -> re.Pattern[str]:
    if words not in _CACHE:
        _CACHE[words] = re.compile(rf"\b(?:{words})\b")
    return _CACHE[words]


def _never(facts: ResultFacts, test: TestFact) -> bool:
    return False


def _always(facts: ResultFacts, test: TestFact) -> bool:
    return True


def _one_secondary(facts: ResultFacts, test: TestFact) -> bool:
    """Of several, "the secondary endpoint" names none."""
    return sum(name.endswith(".secondary") for name in facts.tests) < 2


def _verdict(*which: str) -> Says:
    return lambda facts, test: facts.verdict in which


def _is(field: str, *values: bool | None) -> Says:
    return lambda facts, test: getattr(facts, field) in values


def _test(field: str, *values: bool | None) -> Says:
    return lambda facts, test: getattr(test, field) in values


def _harm(harm: bool) -> Says:
    return lambda facts, test: test.significant is True and test.harm is harm


OUTCOME = r"(?:survival|prognosis|outcome|outcomes|interval|time|median)"
RISK = r"(?:risk|risks|hazard|hazards|mortality|death|deaths|events?|recurrence|progression)"
BAD = (
    rf"(?:shorter|worse|poorer|poor|reduced|lower|decreased|impaired|inferior) {CLOSER}{OUTCOME}"
    rf"|{OUTCOME} {BE} (?:\w+ )?(?:shorter|worse|poorer|poor|reduced|lower|decreased)"
    rf"|(?:higher|increased|elevated|greater|raised) {CLOSER}{RISK}"
    rf"|{RISK} {BE} (?:\w+ )?(?:higher|increased|elevated|greater|raised)"
    r"|(?:die|dies|died) (?:earlier|sooner|more|younger)|(?:early|earlier|more) deaths?"
    r"|(?:fared|did|do|fare) (?:worse|poorly)|more frequent|more often|(?:had|have|with) "
    r"(?:a )?shorter follow up"
)
GOOD = (
    rf"(?:longer|better|improved|higher|increased|superior|prolonged) {CLOSER}{OUTCOME}"
    rf"|{OUTCOME} {BE} (?:\w+ )?(?:longer|better|improved|higher|increased|prolonged)"
    rf"|(?:lower|reduced|decreased|smaller) {CLOSER}{RISK}"
    rf"|{RISK} {BE} (?:\w+ )?(?:lower|reduced|decreased|smaller)"
    r"|(?:die|dies|died) (?:later|less)|(?:fewer|later) deaths?|(?:lived|live|survived) longer"
    r"|(?:fared|did|do|fare) (?:better|well)|less frequent|less often|(?:had|have) "
    r"(?:a )?longer follow up"
)

TABLE = (
    # The verdict, in its own words and in others.
    Claim("support", r"support\w*", _verdict("supported"), _verdict("not_supported")),
    Claim("confirmation",
          r"believ\w*|confirm\w*|corroborat\w*|verif\w*|substantiat\w*|prove[nsd]?|"
          r"proof(?! of an? (?:mechanism|cause))|proofs|proving|"
          r"demonstrat\w*|establish\w*|vindicat\w*|upheld|uphold\w*|affirm\w*|b(?:orne|ears?) out|"
          rf"came true|held true|{CLAIM} {BE} (?:\w+ )?(?:right|true|correct|accurate|met)|"
          rf"(?:{CLAIM}|it) (?:holds?|held|stands?|stood|survive[sd]?|pass(?:es|ed)?|succeed\w*|"
          r"wins?|won)|evidence (?:is )?(?:for|favors|favoring|in favor)|speaks? for|"
          r"agree[sd]? with (?:the |our )?(?:claim|hypothesis|expectation|prediction)|in line with|"
          r"consistent with|right|true|correct|success\w*|expectation was met|evidence|"
          rf"{CLAIM} (?:says|said|states|stated|predicts|predicted|claims|claimed|had it)$|"
          rf"expected (?:\w+ ){{0,4}}?(?:came|there)$|what was expected|"
          rf"(?:verdict|answer|result|results|finding|findings) {BE} (?:\w+ )?(?:positive|yes)",
          _verdict("supported"), _verdict("not_supported", "inconclusive")),
    Claim("refutation",
          r"refut\w*|reject\w*|(?:fell|falls?|fallen) short|disprov\w*|falsif\w*|contradict\w*|"
          r"wrong|false|"
          rf"(?:verdict|answer|result|results|finding|findings) {BE} (?:\w+ )?negative|"
          rf"{CLAIM} (?:fails?|failed)|against (?:the )?{CLAIM}|opposes?|opposed",
          _verdict("not_supported"), _never),
    Claim("an open verdict",
          r"inconclusive|undecided|open|unclear|left undecided",
          _verdict("inconclusive"), _never, future=True),
    Claim("a decided question", r"settle[sd]?|answer(?:s|ed)|closed|resolved|decides?|decided",
          _verdict("supported", "not_supported"), _verdict("inconclusive"), future=True),
    # Tests.
    Claim("significance",
          r"(?:statistically |highly )?significan\w*|"
          rf"null (?:hypothesis )?{BE} (?:not )?(?:\w+ )?(?:excluded|rejected|left|ruled)|"
          rf"p (?:value )?{BE} (?:\w+ )?(?:small|low|tiny)|(?:small|low|tiny) p\b|"
          r"reach\w* (?:the )?(?:\w+ )?(?:level|alpha)|below (?:the )?(?:\w+ )?(?:level|alpha)",
          _test("significant", True),
          lambda facts, test: test.significant is False or facts.controlled is False),
    Claim("an interval with no effect in it",
          r"(?:includes?|spans?|contains?|covers?) null", _test("excludes_null", False), _never),
    Claim("an interval without no effect in it", r"(?:excludes?|excluded) null",
          _test("excludes_null", True), _never),
    Claim("an interval too wide to decide", rf"intervals? {BE} (?:\w+ )?(?:wide|broad)",
          lambda facts, test: test.excludes_null is False or facts.because == "power", _never),
    Claim("a smaller effect that is not excluded",
          rf"(?:{EFFECT} smaller|(?:smaller|weaker|slighter) {EFFECT})(?: \w+){{0,6}}? "
          r"can not be (?:excluded|ruled out|denied)", _never, _always),
    Claim("an effect that is not excluded",
          rf"{EFFECT} (?:\w+ )?can not be (?:excluded|ruled out)",
          _never, lambda facts, test: facts.excluded is False),
    Claim("an excluded effect", rf"(?:relevant )?{EFFECT} {BE} excluded|rul(?:e[sd]?|ing) out",
          _is("excluded", True), _is("excluded", False)),
    Claim("the absence of an effect", rf"absence of (?:an |any )?(?:relevant )?{EFFECT}",
          _never, _is("excluded", True)),
    # An effect, and on which side.
    Claim("the expected direction",
          r"expected (?:direction|sign|way|one)|same (?:direction|way)|^(?:\w+ ){0,3}expected$|"
          r"(?:as|like) expected|as it should|"
          r"expected (?:association|effect|difference)",
          _test("expected", True), _test("expected", False)),
    Claim("the other direction",
          r"(?:other|opposite|wrong|reverse|against the expected) (?:direction|way|sign)",
          _test("expected", False), _test("expected", True)),
    Claim("a worse outcome", BAD, _harm(True), _never, expected=True),
    Claim("a better outcome", GOOD, _harm(False), _never, expected=True),
    Claim("an effect that was seen",
          rf"{EFFECT} (?:\w+ ){{0,6}}?{BE} (?:not |never )?(?:\w+ )?{SEEN}",
          _test("significant", True), _test("significant", False, None), future=True),
    Claim("an effect",
          rf"{BE} (?:not )?(?:\w+ )?(?:associated|correlated|linked|related|prognostic|predictive)|"
          rf"(?:there|it) {BE} (?:an? |no |any )?(?:\w+ )?{EFFECT}|"
          rf"(?:shows?|showed|found|saw|has|had|have) (?:an? |no |any |the )?(?:\w+ )?{EFFECT}|"
          rf"no {EFFECT}|{EFFECT} (?:\w+ )?(?:exists?|existed|appears?|appeared)|"
          r"predicts?|predicted|prognostic|correlat\w*|separates?|separated|stratif\w*|"
          r"discriminat\w*|distinguish\w*|identif(?:y|ies|ied)|influenc\w*|"
          r"(?:groups?|curves?|arms?|exposed|survival|outcomes?|risks?|hazards?|"
          r"they)(?: \w+){0,4}? "
          r"(?:differ|differs|differed)|"
          r"affects?|affected|(?<!enough to )matters?|mattered|works?|worked|goes with|go with|"
          r"went with|"
          r"(?:go|goes|went|come|comes|came) (?:together|along|hand)|"
          rf"{BE} (?:not )?(?:\w+ )?(?:different|unequal)|t(?:ells?|old) apart",
          _test("significant", True), _is("absent", True), future=True, expected=True),
    Claim("a real effect", rf"(?:real|true|genuine|actual) {EFFECT}",
          _test("significant", True), _never),
    Claim("equality of the groups",
          rf"(?:groups?|curves?|arms?|patients) (?:\w+ )?{BE} (?:\w+ )?(?:alike|similar|same|equal|"
          r"comparable|identical)|"
          rf"(?:have|had|has|share|shares|shared|with) (?:the |an? )?(?:same|equal|similar|"
          rf"comparable|identical) {CLOSER}(?:{OUTCOME}|{RISK})", _is("absent", True), _never),
    Claim("a side of no effect",
          r"(?:above|over|exceeds?|greater than|larger than|below|under|less than|smaller than) "
          r"(?:one|null|unity|zero)", _never, _never),
    # Beside the primary comparison.
    Claim("an effect that is lost",
          rf"(?:{EFFECT}|result|it|marker) (?:\w+ )?(?:disappear\w*|vanish\w*|is lost|was lost)|"
          r"explain(?:s|ed)?|account(?:s|ed)? for|(?:effect|association|"
          r"result) (?:\w+ ){0,2}?(?:run|runs|ran) through",
          _is("independent", False), _is("independent", True), future=True),
    Claim("adjustment that changes nothing",
          r"(?:change|changes|changed|takes?|took) (?:\w+ )?(?:nothing|little)|"
          r"nothing (?:\w+ )?chang\w*",
          _is("independent", True), _is("independent", True)),
    Claim("a verdict that stays", r"chang\w* (?:the|this|that) (?:verdict|answer|conclusion|"
          r"reading)",
          _never, _verdict("not_supported")),
    Claim("caution",
          r"weakens|(?:with|calls? for|asks? for|needs?) (?:\w+ )?(?:caution|care)|cautious(?:ly)?|"
          r"(?:should|must) be read with|taken at face value",
          _verdict("not_supported", "inconclusive"), _verdict("not_supported", "inconclusive")),
    Claim("independence",
          r"independent(?:ly)?(?! (?:cohort|data|validation))|add(?:s|ed|ing)? (?:anything |"
          r"nothing )?to|"
          r"beyond(?! what| chance)|incremental\w*|over and above|unchanged|"
          rf"(?:{EFFECT}|result|it|marker) (?:\w+ )?(?:remain|remains|remained|persist|persists|"
          rf"persisted|survive|survives|survived)|(?:{EFFECT}|marker) (?:\w+ )?(?:hold|holds|held)",
          _is("independent", True),
          lambda facts, test: facts.independent is False and facts.associated, future=True),
    Claim("replication",
          r"replicat\w*|reproduc\w*|validat\w*|external\w*|(?:seen|found|shown) by others|"
          r"(?:seen|found|shown|holds?|held|same|true) (?:\w+ ){0,4}?elsewhere|earlier work|"
          r"previous\w*|shown before|same (?:was|results?|effects?|findings?)",
          _is("replicated", True), _is("replicated", False, None), future=True),
    Claim("another cohort",
          r"(?<!came from )(?<!come from )(?<!collected in )(?<!too )(?:second|another|other|"
          r"others|independent|different|new|third|several|more|two|three|"
          r"further|many|all|every) (?:independent |other )?(?:cohorts?|data ?sets?|data sets?|"
          r"populations?|stud(?:y|ies)|trials?|centers?|hospitals?|patients)|cohorts",
          _is("second_cohort", True), _is("replicated", False, None), future=True),
    Claim("a second implementation",
          r"(?:implementations?|programs?) (?:\w+ )?agree[ds]?|another program|same numbers|"
          r"(?:implementations?|programs?) (?:\w+ )?(?:found|gave|got) the same|"
          r"independent (?:program|implementation)|numbers (?:were|are) (?:\w+ )?reproduced",
          _is("reproduced", True), _is("reproduced", False), future=True),
    Claim("a second implementation that disagrees",
          r"(?:implementations?|programs?) (?:\w+ )?disagree[ds]?|disagreements?|"
          r"(?:other|different|deviating) (?:numbers|figures|values)|"
          r"(?:numbers|figures) (?:\w+ )?differ(?:ed)?",
          _is("reproduced", False), _is("reproduced", True)),
    Claim("proportional hazards",
          r"hazards? (?:were|are|was|is) (?:not )?(?:\w+ )?proportional|"
          r"hazards? (?:\w+ ){0,3}?(?:keeps?|kept|same|constant)|"
          r"proportional(?:ity| hazards)? (?:assumption )?(?:\w+ ){0,2}?(?:held|hold|holds?|met|"
          r"satisfied|"
          r"fulfilled|true|fine)|"
          r"assumptions? (?:\w+ ){0,5}?(?:held|hold|holds|met|satisfied|fulfilled)",
          _is("proportional", True), _is("proportional", False)),
    Claim("hazards that are not proportional",
          r"(?:proportional\w*|hazards) (?:\w+ ){0,3}?(?:violated|broken|doubtful|questionable)|"
          rf"(?:{EFFECT}|ratio|hazards?) (?:\w+ ){{0,2}}?(?:chang\w*|drift\w*|var(?:y|ies|"
          rf"ied)) (?:over|with) "
          r"(?:time|follow up)", _is("proportional", False), _is("proportional", True)),
    Claim("stability",
          r"robust\w*|stable|stability|consistent(?:ly)?(?! with)|insensitive|regardless|"
          r"(?:all|every|each) (?:\w+ )?specifications?",
          _is("stable", True), _is("stable", False)),
    Claim("controls",
          r"controls? (?:\w+ )?(?:pass(?:es|ed)?|held|hold|clean|succeeded|fine|behaved|agree\w*)|"
          r"specific(?! survival)|specificity",
          lambda facts, test: facts.controls_passed is True and facts.permuted is True,
          lambda facts, test: facts.controls_passed is False),
    Claim("a control that failed",
          r"(?:fail\w*|broken) controls?|controls? (?:\w+ ){0,3}?fail\w*",
          _never, lambda facts, test: facts.controls_passed is False, future=True),
    Claim("a permutation that finds nothing",
          r"permuted (?:\w+ )?(?:gave|finds?|found|showed) (?:nothing|little)|"
          r"(?:vanish\w*|disappear\w*|lost|gone) (?:\w+ ){0,5}?(?:permut|shuffl)\w*",
          _is("permuted", True), _is("permuted", True)),
    Claim("chance that does as well",
          r"did equally|as (?:extreme|strong|far|low|small|good|large) as",
          lambda facts, test: False in (facts.permuted, facts.specific),
          lambda facts, test: facts.permuted is True and facts.specific is not False),
    Claim("the known positive",
          r"known positive (?:\w+ )?(?:fired|appeared|shows?|showed|was (?:seen|found))",
          _is("known_positive", True), _is("known_positive", False)),
    Claim("error control",
          r"(?:survives?|survived|after|under|passes|passed) (?:\w+ ){0,3}?"
          r"(?:ledger|multiplicity|multiple|corrections?(?! for optimism))|multiple testing|"
          r"error control",
          _is("controlled", True), _is("controlled", False)),
    Claim("power",
          r"(?:well |sufficiently |adequately )powered|(?:sufficient|enough|adequate|ample|plenty) "
          r"(?:\w+ )?(?:events?|patients|power|numbers|deaths|data|cases|observations)|"
          r"power (?:was|is) (?:\w+ )?"
          r"(?:sufficient|adequate|enough|high|ample)|(?:would have )?suffic\w*",
          _is("powered", True), _is("powered", False), future=True),
    Claim("too few events",
          r"more (?:events|patients) (?:are|were) needed|underpowered|toofew (?:events|"
          r"patients)(?:(?: \w+){0,3}? for an? "
          r"(?:\w+ )?(?:answer|decision|conclusion))?|"
          r"fewer (?:events|patients) than (?:\w+ ){0,3}?(?:needed|required|planned|asked)|"
          rf"(?:study|cohort|sample) {BE} (?:\w+ )?(?:smaller than|too small)",
          lambda facts, test: facts.powered is False or facts.verdict == "inconclusive",
          _is("powered", True)),
    Claim("relevance",
          r"(?:clinically )?relevant (?:for|to) patients|clinical(?:ly)? relevan\w*|"
          rf"{BE} (?:clinically )?(?:relevant|meaningful|important)|(?:large|big) enough to matter|"
          r"meaningful\w*|important\w*",
          _is("relevant", True), _is("relevant", False), future=True),
    Claim("registration",
          r"before (?:any|all|the) (?:\w+ )?results?|pre ?registered|confirmatory|"
          r"contract came before",
          _is("registered_first", True), _is("registered_first", False),
          future=True),
    Claim("registration after results",
          r"(?:written|registered|changed|came) after (?:\w+ ){0,6}?(?:seen|known)|"
          r"(?:written|registered|changed|came) after (?:\w+ ){0,3}?results?|exploratory|"
          r"(?:looked at|tried|seen|asked|tested) (?:\w+ ){0,3}?before",
          _is("registered_first", False), _is("registered_first", True)),
    Claim("calibration",
          r"well calibrated|calibrated|good calibration|calibration (?:was|is) good|"
          r"predict\w* well",
          _is("calibrated", True), _is("calibrated", False)),
    Claim("that the test ran",
          r"(?:test|ratio|analysis|model|comparison) (?:\w+ )?(?:ran|was (?:computed|run|done))|"
          r"ran (?:as|well)",
          lambda facts, test: facts.because != "data", lambda facts, test: facts.because == "data"),
    Claim("that a test gave a result", r"gave (?:a |no )?result",
          lambda facts, test: facts.because != "data", lambda facts, test: facts.because == "data"),
    # What nothing here could show.
    Claim("causation",
          r"(?<!other )caus\w*|proof of a mechanism|means(?= (?:\w+ )?(?:death|deaths|risk|"
          r"survival|recurrence|progression))|"
          r"brings?|decides? (?:about|over)|comes? (?:\w+ ){0,2}?(?:death|deaths)|driv(?:e|es|"
          r"en|ing)|drove|leads? to|led to|due to|because of|reason why|"
          r"responsible|mediat\w*|kills?|killed|mechanism (?:\w+ ){0,3}?(?:shown|operates?|acts?|"
          r"proven|real)",
          _never, _always, future=True),
    Claim("use in patients",
          r"(?<!before )(?<!after )treat\w*(?!(?: \w+){0,4}? (?:recorded|known|available|"
          r"taken into))|therap\w*|receive|recommend\w*|guidelines?|clinical (?:use|practice|"
          r"decision\w*)|"
          r"practice|benefit\w*|cure[sd]?|prescri\w*|clinicians? (?:should|can|may)|"
          r"ready|approved|choose|decisions?|be used",
          _never, _always, future=True),
    Claim("adoption",
          r"(?:report|measure|include|add|record|state|use)\w* (?:\w+ ){0,4}?(?:on|in|for|to|of) "
          r"(?:each|every|all|routine|our) (?:\w+ )?(?:patients?|slides?|reports?|stage|"
          r"hospital|clinic|surgery)|(?:select|choose|plan|manage|guide)\w* (?:\w+ )?(?:patients|"
          r"surgery|care|therapy)|before surgery|next (?:drug|trial of)|the claim as|"
          r"routine reports?",
          _never, _always),
    Claim("the absence of limits",
          r"limits? (?:\w+ )?(?:none|negligible|minor|small|few|little)|none|"
          r"(?:no|not|never|nothing|neither|nor|hardly|little|few|small|minor)(?: \w+){0,4}? "
          r"(?:limits?|limited|limitations?|caveats?|weakness\w*|bias\w*|confound\w*|restrictions?|"
          r"missing|problems?|concerns?|errors?)|no (?:\w+ )?correction|"
          r"(?:confound\w*|bias|limits?|limitations?|caveats?) (?:\w+ ){0,3}?(?:dealt with|handled|"
          r"removed|solved|resolved|avoided|taken care)|"
          r"(?:only|sole) (?:test|claim|comparison|question)|"
          r"without (?:any )?(?:\w+ )?(?:limits?|limitations?|caveats?|bias|error|missing|"
          r"restriction|exception|problems?)|free of|unbiased|negligible|limitless|"
          r"confounding (?:\w+ )?(?:can|was|is) (?:be )?(?:excluded|ruled out)|complete",
          _never, _never),
    Claim("certainty",
          r"definit\w*|certain(?:ly)?|undoubt\w*|conclusive\w*|obvious\w*|clearly|final\w*|"
          r"unequivocal\w*|indisputabl\w*|explain\w* (?:\w+ ){0,4}?(?:entirely|fully|wholly|away)",
          _never, _always),
    Claim("a question that is closed",
          r"(?:no|little|without)(?: \w+)? (?:bearing|influence|consequence)|"
          r"(?:no|not|never|nothing|neither)(?: \w+){0,4}? (?:required|needed|necessary)|"
          r"beyond (?:any )?(?:doubt|question)|(?:no|not|any|without|never|hardly|little|nobody|"
          r"none|"
          r"nothing|leave|leaves) (?:\w+ ){0,4}?(?:doubt\w*|question\w*|room|otherwise|else)",
          _never, _never),
    Claim("size",
          rf"(?:strong|strongest|large|big|huge|enormous|marked|striking|great|small|weak|weaker|"
          rf"moderate|modest|considerable|substantial|impressive) (?:\w+ )?{EFFECT}|"
          rf"(?:{EFFECT}|size|result) {BE} (?:\w+ )?(?:strong|large|big|huge|marked|"
          r"striking|great|small|weak|moderate|modest|considerable|substantial|impressive)|"
          r"strongly|greatly|markedly|exceptionally|largely|greatly",
          _never, _never),
    Claim("generality",
          r"generaliz\w*|generalis\w*|universal\w*|all cancers|other cancers|"
          r"(?:all|every|any) (?:\w+ )?populations?|in general",
          _never, _always, future=True),
    Claim("a quantity in words",
          r"doubl\w*|trebl\w*|tripl\w*|twice|thrice|halve[sd]?|half|third of|quarter|\w*fold|"
          r"majority|minority|percent|dozens?|hundreds?|thousands?|most of|nearly all|almost all|"
          r"(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|seventeen|twenty) "
          r"(?!groups|markers|implementations|programs|exposures|sides|ways|axes|parts|curves|"
          r"numbers|cohorts)",
          _never, _never),
    Claim("a finding of others",
          r"reported|published|literature|papers?|authors?|earlier stud\w+|reviewers?|agency",
          _never, _never),
    Claim("a verdict to be ignored",
          r"ignor\w*|overrul\w*|disregard\w*|too cautious|overly cautious|misleading|"
          r"should (?:\w+ )?(?:have been|be read(?! (?:with|as)))|"
          r"(?:should|must) (?:\w+ )?be (?:seen|taken|read|regarded|counted|considered)$",
          _never, _never),
    Claim("secondary endpoints that carry the claim", r"carry the claim", _never, _always),
    Claim("one secondary endpoint", r"the secondary endpoint(?! (?:of|is called))", _one_secondary,
          _one_secondary),
    Claim("novelty",
          r"novel|unprecedented|first (?:proof|time|study|report|to)|"
          r"never (?:been )?(?:reported|described|seen)|discovery|breakthrough",
          _never, _always),
)  # fmt: skip

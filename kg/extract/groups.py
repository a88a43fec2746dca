"""Coordinated subjects and objects of a relation phrase, with their signs."""

from __future__ import annotations

from collections.abc import Sequence

from kg.extract import cues, syntax
from kg.extract.base import Mention
from kg.extract.syntax import Trigger


def signs_of(sentence: str, group: Sequence[Mention], floor: int) -> list[int]:
    """Compute the signs of a coordinated group; members without a modifier inherit the last one."""
    signs = []
    carried = (0, False)
    for position, mention in enumerate(group):
        low = floor if position == 0 else group[position - 1].end
        own = syntax.sign(sentence, mention, min(low, mention.start))
        carried = own if own[0] else carried
        value, judgment = carried
        harm = judgment and mention.name in cues.HARMS
        signs.append(-value if harm else value)
    if len(group) > 1 and syntax.is_loss(sentence, group[-1]):
        # `TGF-beta and PD-L1 blockade`: the loss is shared.
        signs = [sign or -1 for sign in signs[:-1]] + signs[-1:]
    return signs


def subject(sentence: str, left: Sequence[Mention], floor: int) -> list[Mention]:
    """Find the first coordinated group other than a setting, or else the first group."""
    candidates = [
        m
        for m in left
        if not cues.EXCLUDED.search(sentence[floor : m.start])
        and not syntax.setting(sentence, m, floor)
    ]
    pool = candidates or list(left)
    group = [pool[0]]
    for mention in pool[1:]:
        if not syntax.coordinated(sentence, group[-1], mention):
            break
        group.append(mention)
    return group


def subject_after(sentence: str, between: Sequence[Mention]) -> list[Mention]:
    """Find a later predicate's subject: the nearest group of a single type, not a setting."""
    candidates = [m for m in between if not syntax.setting(sentence, m)] or list(between)
    group = group_before(sentence, candidates)
    return [m for m in group if m.type == group[-1].type]


def group_before(sentence: str, left: Sequence[Mention]) -> list[Mention]:
    """Find the coordinated group that ends nearest to the trigger."""
    group = [left[-1]]
    for mention in reversed(left[:-1]):
        if not syntax.coordinated(sentence, mention, group[0]):
            break
        group.insert(0, mention)
    return group


def object_group(sentence: str, right: Sequence[Mention], trigger: Trigger) -> list[Mention]:
    """Find the first coordinated group after the trigger."""
    usable = [m for m in right if not cues.EXCLUDED.search(sentence[trigger.end : m.start])]
    if trigger.relation.canonical == "predicts":
        usable = [m for m in usable if not cues.CARRIER.match(sentence[m.end :])]
    if not usable:
        return []
    first = usable[0]
    if (
        trigger.continues
        and trigger.text.endswith("ed")
        and syntax.starts_predicate(sentence, first)
    ):
        return []  # `raised A and reduced B was seen`: a subject
    gap = sentence[trigger.end : first.start]
    if len(gap) > (45 if trigger.passive else 75):
        return []
    group = [first]
    for mention in usable[1:]:
        if not syntax.coordinated(sentence, group[-1], mention):
            break
        if syntax.next_verb(sentence[group[-1].end : mention.start], trigger):
            break
        if syntax.starts_predicate(sentence, mention):
            break
        group.append(mention)
    return group


def starts_new(sentence: str, following: int, right: Sequence[Mention]) -> bool:
    """Check whether the next trigger starts a new predicate (and so ends the object group)."""
    return any(m.end <= following for m in right)

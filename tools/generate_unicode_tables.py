"""Writes csrc/analysis/unicode_tables.cpp: character classes, word grammar and lower case.

The word grammar is UAX #29 with UTS #51 emoji sequences, the way Lucene's StandardTokenizer reads
them, over the characters of Unicode 12.1 (the version Lucene 9 was generated from). Properties come
from the PyPI package `unicodedataplus` (extra `tables`); characters younger than 12.1 count as
unassigned. The grammar is compiled here to a minimal automaton over character classes, so that the
C++ side walks one table.

    python tools/generate_unicode_tables.py csrc/analysis/unicode_tables.cpp
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import unicodedataplus as ud

NUM_CODE_POINTS = 0x110000
UNICODE_VERSION = (12, 1)
ACCIDENTAL_EMOJI = frozenset((0xA9, 0xAE, 0x2122, 0x3030, 0x303D))
PRESENTATION_SELECTORS = frozenset((0xFE0E, 0xFE0F))

WORD_BREAK = {
    "ALetter": "letter",
    "Hebrew_Letter": "hebrew",
    "Numeric": "numeric",
    "Katakana": "katakana",
    "MidLetter": "mid_letter",
    "MidNumLet": "mid_num_let",
    "MidNum": "mid_num",
    "Single_Quote": "single_quote",
    "Double_Quote": "double_quote",
    "ExtendNumLet": "extend_num_let",
    "Regional_Indicator": "regional",
    "Extend": "ignorable",
    "Format": "ignorable",
    "ZWJ": "ignorable",
}

Traits = frozenset[str]


def _is_known(char: str) -> bool:
    age = ud.age(char)
    return (
        age != "Unassigned"
        and tuple(int(part) for part in str(age).split(".")[:2]) <= UNICODE_VERSION
    )


def _emoji_traits(code: int, char: str) -> set[str]:
    traits = set()
    keycap = char in "0123456789#*"
    modifier = ud.is_emoji_modifier(char)
    plain = not (keycap or modifier or code in ACCIDENTAL_EMOJI)
    regional = ud.word_break(char) == "Regional_Indicator"
    if ud.is_extended_pictographic(char) or (ud.is_emoji(char) and plain and not regional):
        traits.add("emoji")
    if modifier:
        traits.add("emoji_modifier")
    if ud.is_emoji_modifier_base(char):
        traits.add("emoji_modifier_base")
    if keycap:
        traits.add("keycap_base")
    return traits


def traits_of(code: int) -> Traits:
    """The grammar's view of one code point."""
    char = chr(code)
    traits = _emoji_traits(code, char)
    if _is_known(char):
        word_break = WORD_BREAK.get(str(ud.word_break(char)))
        if word_break:
            traits.add(word_break)
        if 0xFF00 <= code <= 0xFFEF and ud.category(char) == "Nd":
            traits.add("numeric")
        for script in ("Han", "Hiragana"):
            if ud.script(char) == script:
                traits.add(script.lower())
        if ud.line_break(char) == "SA":
            traits.add("complex_context")
    special = {0x200D: "zwj", 0xFE0F: "emoji_selector", 0x20E3: "keycap", 0xE007F: "tag_end"}
    if code in special:
        traits.add(special[code])
    if 0xE0020 <= code <= 0xE007E:
        traits.add("tag")
    if code in PRESENTATION_SELECTORS:
        traits.add("selector")
    return frozenset(traits)


@dataclass(frozen=True)
class Fragment:
    """A piece of a nondeterministic automaton with one entry and one exit."""

    entry: int
    exit: int


@dataclass
class Grammar:
    """Thompson's construction over sets of character classes."""

    classes: list[Traits]
    edges: list[dict[int, set[int]]] = field(default_factory=list)
    silent: list[set[int]] = field(default_factory=list)

    def state(self) -> int:
        self.edges.append({})
        self.silent.append(set())
        return len(self.edges) - 1

    def char(self, accept: Callable[[Traits], bool]) -> Fragment:
        entry, leave = self.state(), self.state()
        for index, traits in enumerate(self.classes):
            if accept(traits):
                self.edges[entry].setdefault(index, set()).add(leave)
        return Fragment(entry, leave)

    def any_of(self, *names: str) -> Fragment:
        return self.char(lambda traits: bool(traits & set(names)))

    def seq(self, *parts: Fragment) -> Fragment:
        for left, right in zip(parts, parts[1:], strict=False):
            self.silent[left.exit].add(right.entry)
        return Fragment(parts[0].entry, parts[-1].exit)

    def alt(self, *parts: Fragment) -> Fragment:
        entry, leave = self.state(), self.state()
        for part in parts:
            self.silent[entry].add(part.entry)
            self.silent[part.exit].add(leave)
        return Fragment(entry, leave)

    def opt(self, part: Fragment) -> Fragment:
        self.silent[part.entry].add(part.exit)
        return part

    def plus(self, part: Fragment) -> Fragment:
        wrapped = self.alt(part)
        self.silent[part.exit].add(part.entry)
        return wrapped

    def star(self, part: Fragment) -> Fragment:
        return self.opt(self.plus(part))

    def with_ignorables(self, *names: str) -> Fragment:
        """WB4: a character followed by any Extend, Format or ZWJ."""
        return self.seq(self.any_of(*names), self.star(self.any_of("ignorable")))

    def with_plain_ignorables(self, *names: str) -> Fragment:
        """As WB4, but presentation selectors stay visible to the emoji rules."""
        follower = self.char(lambda traits: "ignorable" in traits and "selector" not in traits)
        return self.seq(self.any_of(*names), self.star(follower))


def emoji_rules(g: Grammar) -> Fragment:
    """UTS #51 sequences: presentation, modifier, joiner, tag, keycap and flag sequences."""

    def element() -> Fragment:
        character = g.seq(
            g.star(g.any_of("zwj")),
            g.with_plain_ignorables("emoji"),
            g.opt(g.any_of("emoji_selector")),
        )
        base = g.seq(g.star(g.any_of("zwj")), g.with_plain_ignorables("emoji_modifier_base"))
        return g.alt(character, g.seq(g.opt(base), g.with_plain_ignorables("emoji_modifier")))

    joined = g.star(g.seq(g.any_of("zwj"), element()))
    tagged = g.seq(g.plus(g.any_of("tag")), g.any_of("tag_end"))
    keycap = g.seq(
        g.with_plain_ignorables("keycap_base"),
        g.opt(g.any_of("emoji_selector")),
        g.with_plain_ignorables("keycap"),
    )
    flag = g.seq(g.with_ignorables("regional"), g.with_ignorables("regional"))
    return g.alt(g.seq(element(), g.alt(joined, tagged)), keycap, flag)


def word_rules(g: Grammar) -> Fragment:
    """WB5 to WB13b: letters, numbers, Katakana and the connectors between them."""
    ex = g.with_ignorables
    mid_letter = ("mid_letter", "mid_num_let", "single_quote")
    mid_number = ("mid_num", "mid_num_let", "single_quote")
    letters = ("letter", "hebrew")

    def chain(unit: tuple[str, ...], middle: tuple[str, ...] | None) -> Fragment:
        links = [g.star(ex("extend_num_let"))]
        if middle:
            links.append(ex(*middle))
        return g.seq(ex(*unit), g.star(g.seq(g.alt(*links), ex(*unit))))

    def core() -> Fragment:
        quoted = g.alt(ex("single_quote"), g.seq(ex("double_quote"), ex("hebrew")))
        hebrew = g.seq(ex("hebrew"), quoted)
        run = g.plus(g.alt(hebrew, chain(("numeric",), mid_number), chain(letters, mid_letter)))
        return g.alt(chain(("katakana",), None), run)

    more = g.star(g.seq(g.plus(ex("extend_num_let")), core()))
    return g.seq(g.star(ex("extend_num_let")), core(), more, g.star(ex("extend_num_let")))


def token_rules(g: Grammar) -> Fragment:
    single = g.alt(g.with_ignorables("han"), g.with_ignorables("hiragana"))
    return g.alt(
        emoji_rules(g), word_rules(g), g.plus(g.with_ignorables("complex_context")), single
    )


def _closure(g: Grammar, states: Iterable[int]) -> frozenset[int]:
    seen, todo = set(states), list(states)
    while todo:
        for target in g.silent[todo.pop()] - seen:
            seen.add(target)
            todo.append(target)
    return frozenset(seen)


def determinise(g: Grammar, rule: Fragment) -> tuple[list[list[int]], list[bool]]:
    """Subset construction. State 0 is dead, state 1 the start."""
    start = _closure(g, [rule.entry])
    names = {frozenset[int](): 0, start: 1}
    order = [frozenset[int](), start]
    table: list[list[int]] = []
    for states in order:
        row = []
        for index in range(len(g.classes)):
            targets = {t for s in states for t in g.edges[s].get(index, ())}
            closed = _closure(g, targets)
            if closed not in names:
                names[closed] = len(order)
                order.append(closed)
            row.append(names[closed])
        table.append(row)
    return table, [rule.exit in states for states in order]


def minimise(
    table: list[list[int]], accepting: list[bool]
) -> tuple[list[list[int]], list[bool], list[int]]:
    """Moore's partition refinement; also merges classes that no state tells apart.

    Returns the smaller table, its accepting flags and the new class of every old class.
    """
    block = [int(flag) for flag in accepting]
    while True:
        keys = [(block[s], *(block[t] for t in row)) for s, row in enumerate(table)]
        names: dict[tuple[int, ...], int] = {}
        for key in keys:
            names.setdefault(key, len(names))
        refined = [names[key] for key in keys]
        if len(set(refined)) == len(set(block)):
            break
        block = refined
    num_states = len(set(block))
    # The first two old states are dead and start, and `names` numbers blocks by first use.
    small = [[0] * len(table[0]) for _ in range(num_states)]
    accept = [False] * num_states
    for state, row in enumerate(table):
        small[refined[state]] = [refined[target] for target in row]
        accept[refined[state]] = accepting[state]
    columns: dict[tuple[int, ...], int] = {}
    merged = [columns.setdefault(column, len(columns)) for column in zip(*small, strict=True)]
    first = [merged.index(index) for index in range(len(columns))]
    return [[row[index] for index in first] for row in small], accept, merged


def lower_pairs() -> list[tuple[int, int]]:
    """Simple (one to one) lower-case mappings beyond ASCII; U+0130 maps to i, as in Java."""
    pairs = [(0x130, ord("i"))]
    for code in range(0x80, NUM_CODE_POINTS):
        lowered = chr(code).lower()
        if len(lowered) == 1 and ord(lowered) != code:
            pairs.append((code, ord(lowered)))
    return sorted(pairs)


def _rows(items: list[str], per_line: int) -> str:
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return ",\n".join(f"    {line}" for line in lines)


def render() -> str:
    """The whole generated source file."""
    traits = [traits_of(code) for code in range(NUM_CODE_POINTS)]
    classes = sorted(set(traits), key=lambda t: (len(t), sorted(t)))
    index_of = {group: index for index, group in enumerate(classes)}
    grammar = Grammar(classes)
    table, accepting, merged = minimise(*determinise(grammar, token_rules(grammar)))
    class_of = [merged[index_of[group]] for group in traits]
    starts = [c for c in range(NUM_CODE_POINTS) if c == 0 or class_of[c] != class_of[c - 1]]
    ranges = [f"{{0x{c:X}, {class_of[c]}}}" for c in starts]
    lowers = [f"{{0x{a:X}, 0x{b:X}}}" for a, b in lower_pairs()]
    flat = [str(target) for row in table for target in row]
    accept = [str(int(flag)) for flag in accepting]
    assert len(table) < 256, "states must fit a byte"
    return f"""// Generated by tools/generate_unicode_tables.py; do not edit.
// clang-format off
#include "analysis/unicode_tables.hpp"

namespace ralm {{

const std::size_t kNumClasses = {len(table[0])};

const ClassRange kClassRanges[] = {{
{_rows(ranges, 6)}
}};
const std::size_t kNumClassRanges = {len(ranges)};

const std::uint8_t kTransitions[] = {{
{_rows(flat, len(table[0]))}
}};

const std::uint8_t kAccepting[] = {{
{_rows(accept, 32)}
}};
const std::size_t kNumStates = {len(table)};

const LowerPair kLowerPairs[] = {{
{_rows(lowers, 6)}
}};
const std::size_t kNumLowerPairs = {len(lowers)};

}}  // namespace ralm
"""


def main() -> None:
    Path(sys.argv[1]).write_text(render(), encoding="ascii")


if __name__ == "__main__":
    main()

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
from collections.abc import Iterable
from pathlib import Path

import unicodedataplus as ud
from automaton import Fragment, Grammar, Traits, determinise, minimise

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

# Where Unicode 12.1 and the data of `unicodedataplus` differ on characters of 12.1; found by
# comparing all code points with Lucene (benchmarks/retrieval/compare_analyzer.py).
OLD_WORD_BREAK = {
    "Other": (
        (0x2E5, 0x2EB),
        (0x55A, 0x55A),
        (0x55F, 0x55F),
        (0x58A, 0x58A),
        (0x19DA, 0x19DA),
        (0xA708, 0xA716),
        (0x16FE2, 0x16FE2),
    ),
    "Format": (
        (0x600, 0x605),
        (0x6DD, 0x6DD),
        (0x70F, 0x70F),
        (0x8E2, 0x8E2),
        (0x110BD, 0x110BD),
        (0x110CD, 0x110CD),
    ),
    "MidNum": ((0xFE10, 0xFE10), (0xFE14, 0xFE14)),
}
OLD_COMPLEX_CONTEXT = frozenset((0x19DA,))
OLD_NOT_HAN = frozenset((0x16FE2,))
# Unassigned code points that 12.1 set aside for pictographs; later versions gave some back.
RESERVED_FOR_PICTOGRAPHS = ((0x1F000, 0x1F0FF), (0x1F1AE, 0x1F1E5), (0x1F200, 0x1FFFD))


def _is_known(char: str) -> bool:
    age = ud.age(char)
    return (
        age != "Unassigned"
        and tuple(int(part) for part in str(age).split(".")[:2]) <= UNICODE_VERSION
    )


def _inside(code: int, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= code <= last for first, last in ranges)


def _word_break(code: int) -> str:
    for value, ranges in OLD_WORD_BREAK.items():
        if _inside(code, ranges):
            return value
    return str(ud.word_break(chr(code)))


def _is_pictograph(code: int, char: str) -> bool:
    reserved = not _is_known(char) and _inside(code, RESERVED_FOR_PICTOGRAPHS)
    return reserved or bool(ud.is_extended_pictographic(char))


def _emoji_traits(code: int, char: str) -> set[str]:
    traits = set()
    keycap = char in "0123456789#*"
    modifier = ud.is_emoji_modifier(char)
    plain = not (keycap or modifier or code in ACCIDENTAL_EMOJI)
    regional = ud.word_break(char) == "Regional_Indicator"
    if _is_pictograph(code, char) or (ud.is_emoji(char) and plain and not regional):
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
        word_break = WORD_BREAK.get(_word_break(code))
        if word_break:
            traits.add(word_break)
        if 0xFF00 <= code <= 0xFFEF and ud.category(char) == "Nd":
            traits.add("numeric")
        for script in ("Han", "Hiragana"):
            if ud.script(char) == script and code not in OLD_NOT_HAN:
                traits.add(script.lower())
        if ud.line_break(char) == "SA" or code in OLD_COMPLEX_CONTEXT:
            traits.add("complex_context")
    special = {0x200D: "zwj", 0xFE0F: "emoji_selector", 0x20E3: "keycap", 0xE007F: "tag_end"}
    if code in special:
        traits.add(special[code])
    if 0xE0020 <= code <= 0xE007E:
        traits.add("tag")
    if code in PRESENTATION_SELECTORS:
        traits.add("selector")
    return frozenset(traits)


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
    """Everything that is a token; what matches nothing is skipped."""
    single = g.alt(g.with_ignorables("han"), g.with_ignorables("hiragana"))
    return g.alt(
        emoji_rules(g), word_rules(g), g.plus(g.with_ignorables("complex_context")), single
    )


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
    """Writes the file named on the command line."""
    Path(sys.argv[1]).write_text(render(), encoding="ascii")


if __name__ == "__main__":
    main()

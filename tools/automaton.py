"""Regular expressions over character classes, compiled to a minimal deterministic automaton."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Traits = frozenset[str]
"""What the grammar can say of a character; characters with the same traits form a class."""


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
        """A new state without edges."""
        self.edges.append({})
        self.silent.append(set())
        return len(self.edges) - 1

    def char(self, accept: Callable[[Traits], bool]) -> Fragment:
        """One character of a class that `accept` likes."""
        entry, leave = self.state(), self.state()
        for index, traits in enumerate(self.classes):
            if accept(traits):
                self.edges[entry].setdefault(index, set()).add(leave)
        return Fragment(entry, leave)

    def any_of(self, *names: str) -> Fragment:
        """One character with any of the traits."""
        return self.char(lambda traits: bool(traits & set(names)))

    def seq(self, *parts: Fragment) -> Fragment:
        """The parts, one after the other."""
        for left, right in itertools.pairwise(parts):
            self.silent[left.exit].add(right.entry)
        return Fragment(parts[0].entry, parts[-1].exit)

    def alt(self, *parts: Fragment) -> Fragment:
        """One of the parts."""
        entry, leave = self.state(), self.state()
        for part in parts:
            self.silent[entry].add(part.entry)
            self.silent[part.exit].add(leave)
        return Fragment(entry, leave)

    def opt(self, part: Fragment) -> Fragment:
        """The part or nothing."""
        self.silent[part.entry].add(part.exit)
        return part

    def plus(self, part: Fragment) -> Fragment:
        """The part once or more."""
        wrapped = self.alt(part)
        self.silent[part.exit].add(part.entry)
        return wrapped

    def star(self, part: Fragment) -> Fragment:
        """The part any number of times."""
        return self.opt(self.plus(part))

    def with_ignorables(self, *names: str) -> Fragment:
        """WB4: a character followed by any Extend, Format or ZWJ."""
        return self.seq(self.any_of(*names), self.star(self.any_of("ignorable")))

    def with_plain_ignorables(self, *names: str) -> Fragment:
        """As WB4, but presentation selectors stay visible to the emoji rules."""
        follower = self.char(lambda traits: "ignorable" in traits and "selector" not in traits)
        return self.seq(self.any_of(*names), self.star(follower))


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

"""The command line as one text: a change of the surface shows up as a diff of cli_surface.txt."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pytest

from ralm_engine.cli.program import build_parser, main

SNAPSHOT = Path(__file__).with_name("cli_surface.txt")


def describe(parser: argparse.ArgumentParser) -> Iterator[str]:
    """A line a command, then one an argument; independent of how argparse lays out its help."""
    groups = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    if not groups:
        yield parser.prog
    for action in parser._actions:
        if not isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            yield "  " + argument(action)
    for group in groups:
        for command in group.choices.values():
            yield from describe(command)


def argument(action: argparse.Action) -> str:
    words = ["/".join(action.option_strings) or "argument"]
    if action.choices:
        words.append("{" + ",".join(map(str, action.choices)) + "}")
    elif action.metavar or action.nargs != 0:
        words.append(str(action.metavar or action.dest.upper()))
    if action.nargs not in (None, 0):
        words.append(f"({action.nargs})")
    if action.default not in (None, False, argparse.SUPPRESS, []):
        words.append(f"= {action.default}")
    return " ".join(words)


def commands() -> list[list[str]]:
    lines = describe(build_parser())
    return [line.split()[1:] for line in lines if line.startswith("ralm-engine")]


def test_surface_is_as_written_down():
    """Fails when a command or an option changes; if that is meant, write the new text here."""
    surface = "\n".join(describe(build_parser())) + "\n"
    assert surface == SNAPSHOT.read_text(), f"the surface is now:\n{surface}"


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_command_explains_itself(words, capsys):
    """Fails when a command's help lacks a sentence, an example, or a word on an argument."""
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    shown = capsys.readouterr().out
    assert f"  ralm-engine {' '.join(words)}" in shown.partition("examples:")[2]
    assert max(map(len, shown.splitlines())) <= 100
    assert shown.count(". ") + shown.count(".\n") >= 1


@pytest.mark.parametrize("words", commands(), ids=" ".join)
def test_every_argument_has_help(words):
    """Fails when an argument is only a name."""
    parser = build_parser()
    for word in words:
        (group,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
        parser = group.choices[word]
    assert [action.dest for action in parser._actions if not action.help] == []


def test_help_fits_a_screen(capsys):
    """Fails when the first page a newcomer sees needs scrolling."""
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert len(capsys.readouterr().out.splitlines()) <= 40


def test_version(capsys):
    """Fails when --version does not print the package's version."""
    from ralm_engine import __version__

    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"ralm-engine {__version__}\n"

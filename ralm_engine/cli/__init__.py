"""The program `ralm-engine`. Importing it loads neither torch nor Ray."""

from ralm_engine.cli.program import main

__all__ = ["main"]

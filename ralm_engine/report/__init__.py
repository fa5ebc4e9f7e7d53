"""The report of a run: one self-contained HTML page, made from its tables alone."""

from __future__ import annotations

from ralm_engine.report.render import render_report

__all__ = ["render_report"]

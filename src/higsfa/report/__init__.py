"""Pages of runs, faces and walks: one HTML file each (``pip install higsfa[plots]``); a card in Markdown."""

from higsfa.evaluation.schema import ReportError
from higsfa.report.card import write_card
from higsfa.report.explorer import write_explorer
from higsfa.report.page import write_report
from higsfa.report.walk import write_walk

__all__ = ["ReportError", "write_card", "write_explorer", "write_report", "write_walk"]

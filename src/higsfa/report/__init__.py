"""Pages of runs, faces and walks: one HTML file each. Needs matplotlib and jinja2: ``pip install higsfa[plots]``."""

from higsfa.evaluation.schema import ReportError
from higsfa.report.explorer import write_explorer
from higsfa.report.page import write_report
from higsfa.report.walk import write_walk

__all__ = ["ReportError", "write_explorer", "write_report", "write_walk"]

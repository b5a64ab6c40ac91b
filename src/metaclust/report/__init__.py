"""The report of a clustering: one HTML file to view, share and print."""

from metaclust.report.write import write_report

__all__ = ["write_report"]

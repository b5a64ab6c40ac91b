"""The report of a clustering: one HTML file to look at, to send and to print."""

from metaclust.report.write import write_report

__all__ = ["write_report"]

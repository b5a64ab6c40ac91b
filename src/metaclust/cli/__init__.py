"""The command line."""

from metaclust.cli.app import main

__all__ = ["main"]

"""The component families."""

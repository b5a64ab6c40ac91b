"""make.py is for the code of version 0.1.0."""

collect_ignore = ["make.py"]

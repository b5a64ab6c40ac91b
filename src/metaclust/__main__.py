"""`python -m metaclust` is the command line."""

from metaclust.cli import main

if __name__ == "__main__":
    main()

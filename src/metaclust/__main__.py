"""`python -m metaclust` is the command line."""

from metaclust.cli.app import main

if __name__ == "__main__":
    main()

"""`python -m gangplan` is the command line."""

from gangplan.cli import main

main()

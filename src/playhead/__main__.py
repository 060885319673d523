"""`python -m playhead` is the command line."""

from playhead.cli import main

main()

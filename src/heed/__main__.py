"""`python -m heed`."""

from heed.cli import main

main()

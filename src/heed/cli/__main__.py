"""`python -m heed.cli`."""

from heed.cli import main

main()

"""The command line: it reads options, calls the library, and hands values to `report`.

Anything that a user can get wrong is checked before torch is loaded or a model is run, and ends
in one sentence and exit code 2.
"""

# The verbs join `app` when they are imported, in the order in which `heed --help` shows them.
from heed.cli import explain, audit, rank, plan, diff, reproduce, report, train  # noqa: F401, I001
from heed.cli import convert, models, list, cite  # noqa: F401
from heed.cli.root import app, main

__all__ = ["app", "main"]

"""The command `heed`, which the verbs join; and how it ends when something is wrong."""

from __future__ import annotations

import io
import os
import re
import sys
from importlib import metadata
from typing import Annotated, Any

import typer

from heed.cli.outputs import say
from heed.errors import HeedError
from heed.progress import for_stderr, listening

app = typer.Typer(
    name="heed",
    help="""Explain what a text classifier attends to, and audit whether that explains it.

    heed explain "the selection is great but the service is bad"

    heed audit -o audit.html
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"heed {metadata.version('heed')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            metavar="",
            help="Show the version and exit.",
            callback=_version,
            is_eager=True,
        ),
    ] = False,
) -> None: ...


# typer has no public name for it: the error of unknown options and commands, too
_UsageError: type[Exception] = typer.BadParameter.__bases__[0]


def _usage(error: Any) -> str:
    """What is wrong with a command line, in one sentence; nothing where the help was shown."""
    message = error.format_message().rstrip(".")
    if type(error).__name__ == "NoArgsIsHelpError":
        return message  # older versions of typer leave it to the caller to show the help
    # the words of the library that checks values
    message = message.replace("Value error, ", "")
    message = re.sub(
        r"Input should be greater than or equal to (\S+)", r"it must be \1 or more", message
    )
    if message.endswith("?"):
        return f"heed: {message}"
    return f"heed: {message}; see {error.ctx.command_path if error.ctx else 'heed'} --help."


def main() -> None:
    """Run the command line; an expected error is one sentence on standard error and exit code 2."""
    # threads that spin while they wait are 50 times slower beside a busy process
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal that is not UTF-8 shows '?', and not a traceback
            stream.reconfigure(errors="replace")
    try:
        with listening(for_stderr()):
            code = app(prog_name="heed", standalone_mode=False)
        sys.exit(code or 0)
    except _UsageError as error:
        if sentence := _usage(error):
            say(sentence)
        sys.exit(2)
    except HeedError as error:
        say(f"heed: {error}")
        sys.exit(2)
    except MemoryError:
        say("heed: There is not enough memory for this: ask for fewer samples or documents.")
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output went away: `heed list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:  # a full disk behind `heed … > FILE`
        say(f"heed: Reading or writing failed ({error}).")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)

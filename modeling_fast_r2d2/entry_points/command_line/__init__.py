"""``fast-r2d2 parse | evaluate | report | neighbours | convert``: a thin layer over the library.

Each command is a module. Those with options import nothing but the standard library, so that help and complaints appear
at once. Each command imports the library when it runs.
"""

import argparse
import io
import os
import sys
from importlib.metadata import version

from . import convert, evaluate, neighbours, parse, report

COMMANDS = {"parse": parse, "evaluate": evaluate, "report": report, "neighbours": neighbours, "convert": convert}


def main(arguments: list[str] | None = None) -> None:
    """Run a command. After bad input, or if a file or standard output cannot be read or written, it prints one line on
    standard error and exits with code 2. If the reader of its output, such as head, has gone, it exits with 141, and
    after Ctrl-C with 130."""
    _buffer_output()
    parser = argparse.ArgumentParser(prog="fast-r2d2", description="Parse raw text, and evaluate trees.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {version('fast-r2d2')}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))
    for name, module in COMMANDS.items():
        summary = (module.__doc__ or "").split("\n")[0]
        command = commands.add_parser(
            name, help=summary, description=module.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    options = parser.parse_args(arguments)
    bound_onednn_memory()
    try:
        _run(options)
    except BrokenPipeError as error:
        raise SystemExit(141) from error  # what a shell says of a program that SIGPIPE ends
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # as shells report a command that Ctrl-C has ended
    except (ValueError, OSError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        print(f"fast-r2d2 {options.command}: error: {lines[0]}", file=sys.stderr)
        raise SystemExit(2) from error


def _run(options: argparse.Namespace) -> None:
    """Run the command of the options, and write all of its output before it counts as done."""
    if sys.stdout is None:
        raise ValueError("standard output is closed; send it to a file or to /dev/null")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    try:
        options.run(options)
    finally:
        try:
            sys.stdout.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else Python tries again when it ends
            raise


def _buffer_output() -> None:
    """With PYTHONUNBUFFERED standard output has no buffer, and Python drops what a full disk did not take, without an
    error. A buffer notices; it is flushed at every line."""
    stdout = sys.__stdout__
    raw = getattr(stdout, "buffer", None)
    if stdout and sys.stdout is stdout and isinstance(raw, io.RawIOBase):
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), stdout.encoding, stdout.errors, line_buffering=True)


def bound_onednn_memory() -> None:
    """Let oneDNN keep what it sets up for 64 shapes of products instead of 1,024, about 0.1 MiB each.

    Almost every batch has new shapes, so that older ones are rarely seen again. oneDNN reads this at its first use.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")

"""The command ``infobatch``. It needs the extra ``lab``, which is imported only when the command runs."""

import sys

EXTRA = ("matplotlib", "rich", "typer")


def main() -> None:
    """Run the command; if a package is missing, say in one line what to install."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in EXTRA:
            raise
        sys.exit(f'infobatch: the command needs {missing}, which is missing: pip install "infobatch[lab]"')
    app()

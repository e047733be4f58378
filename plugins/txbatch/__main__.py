"""`python -m txbatch`: the command. The version is printed without the import of any command."""

import sys

from txbatch import __version__


def command() -> None:
    """Run the command line."""
    if sys.argv[1:] == ["--version"]:
        print(f"txbatch, version {__version__}")
        return
    from txbatch.core.errors import TxbatchError
    from txbatch.fit import check_python

    try:
        check_python()  # before the commands: these do not import on an older Python
    except TxbatchError as error:
        sys.exit(f"txbatch: {error}")
    from txbatch.cli.main import main

    main(prog_name="txbatch")


if __name__ == "__main__":
    command()

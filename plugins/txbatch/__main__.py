"""`python -m txbatch`: the command."""

from txbatch.cli.main import main

if __name__ == "__main__":
    main(prog_name="txbatch")

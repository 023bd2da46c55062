"""Subcommands around checks. Each module has `add_parser(subparsers)`, see verify/cli.py."""

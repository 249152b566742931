"""What a user types, one module a sub-command; `dreamfleet.cli` calls them.

Each has FLAGS (its own options, as opposed to those of the config), `add_arguments(parser)` and
`run(args, words) -> exit code`, where `words` are what the parser left over for the config.
"""

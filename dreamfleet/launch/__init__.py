"""Starting, watching, ending and joining runs: `run` from a config, `combined` and `serial` from factories.

Imports nothing, since every role's process passes through here.
"""

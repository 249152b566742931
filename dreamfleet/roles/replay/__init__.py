"""The replay server."""

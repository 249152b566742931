"""The local web page on runs: `dreamfleet dashboard`.

Reads only what runs write into their log directories, in the order: `folders` finds runs and opens files, `status` and
`joined` read the roles, `run` holds one run, `series` and `fleet` turn it into what a page shows, `hub` keeps all runs
up to date for all browsers, `events` tells each browser what is new, `app` answers requests, `server` listens. The page
itself is in `static`.
"""

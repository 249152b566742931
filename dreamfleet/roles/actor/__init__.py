"""The policy server: requests in, actions out, transitions on their way to replay and logger."""

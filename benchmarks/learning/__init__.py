"""Learning curves of named tasks over seeds and ways to run them, compared with recorded ones."""

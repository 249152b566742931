"""What can be taken from a log directory of the reference implementation (danijar/dreamerv3)."""

"""Suites of environments, a module each with a function make_SUITE(name, seed, **options); `registry` imports them.

What a suite needs is imported only when one of its environments is made.
"""

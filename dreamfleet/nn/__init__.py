"""Layers and distributions of world models, as JAX modules and functions that know nothing of agents."""

"""The same fleet on a Ray cluster: Ray places and starts the roles, our supervisor does the rest."""

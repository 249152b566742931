"""The networks of the agent and the layers that they are made of."""

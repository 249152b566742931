"""The training side of the agent."""

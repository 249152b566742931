"""What several packages need and none of them owns. Knows nothing of agents, environments or replay."""

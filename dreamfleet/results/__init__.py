"""What is made of a run afterwards: scores of a trained agent, learning curves, videos, and exported policies."""

"""The engine for peers that speak the portal library; it does not encrypt."""

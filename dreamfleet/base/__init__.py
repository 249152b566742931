"""What several packages need and none of them owns; imports nothing of ours but the errors."""

"""What joins engine and store: the wake-ups, commits in groups, the keeping of time, and upkeep."""

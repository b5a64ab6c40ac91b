"""The named data sets: what they are, where they are, how they are read."""

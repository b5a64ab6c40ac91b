"""Side by side, as ratios of two things measured in one run."""

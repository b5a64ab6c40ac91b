"""The losses: the continuous adjusted Rand index, the prototypical loss, and those of the comparing methods."""

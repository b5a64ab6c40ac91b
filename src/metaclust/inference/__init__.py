"""From representations to clusters: initialise, refine, select; and the result."""

"""The paper's protocol on real data, from the command line."""

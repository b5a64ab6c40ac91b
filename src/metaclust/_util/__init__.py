"""Helpers that know nothing of clustering: files, progress, checks of arguments, devices, processes."""

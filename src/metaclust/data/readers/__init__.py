"""Readers of files: tables, arrays, archives, folders of images."""

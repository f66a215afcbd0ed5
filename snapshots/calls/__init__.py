"""Checks of arguments, ranges of epochs and progress, shared by calls."""

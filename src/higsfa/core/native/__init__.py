"""Compiled routines: two calls, each for a whole tile."""

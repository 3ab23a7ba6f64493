"""Measurements against peers on the same data, in CPU-seconds of the whole process tree (`make bench`)."""

"""Exports under way: what is read and what is missing, the tasks that read, and how the result comes to be seen."""

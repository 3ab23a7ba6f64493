"""Two tables of two clusters held against each other, token range by token range."""

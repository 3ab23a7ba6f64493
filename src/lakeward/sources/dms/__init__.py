"""AWS DMS change files on a landing folder: names, listing, reading."""

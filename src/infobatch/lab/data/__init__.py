"""What is trained on: data sets by name, read from a folder."""

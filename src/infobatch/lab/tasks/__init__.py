"""Tasks to train: one file per kind of task, and the code they share."""

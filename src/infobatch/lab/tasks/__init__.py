"""What is trained: one file per kind of task, and what they share."""

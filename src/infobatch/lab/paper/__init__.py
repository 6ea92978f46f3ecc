"""What the paper shows: its tables and figures, beside what is measured here."""

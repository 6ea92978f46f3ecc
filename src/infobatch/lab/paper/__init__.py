"""The paper's tables and figures, each beside the same measurement made here."""

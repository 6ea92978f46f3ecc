"""One global plan on many processes."""

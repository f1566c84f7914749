"""Dead letters: records that a job could not use; written, read, and sent again."""

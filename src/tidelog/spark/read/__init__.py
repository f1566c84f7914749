"""The source: plans ranges of offsets, and reads them in tasks, straight into Arrow."""

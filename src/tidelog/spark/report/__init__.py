"""Query reports: the records by which source and sink report their progress to the cluster."""

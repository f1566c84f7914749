"""What a broker counts and how that is shown: counters, histograms, the text format, an HTTP server."""

"""Records for people: read within bounds, filtered in a process of its own, shown, masked, exported."""

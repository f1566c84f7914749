"""Regular expressions in linear time: RE2 for topics and ids, Java for names of principals."""

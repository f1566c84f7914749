"""Tools for testing with Tidelog: a clock that tests move by hand, a broker inside the test process."""

"""One request from its frame to its response: dispatch, the services of handlers, and the request log."""

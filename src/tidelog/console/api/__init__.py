"""The HTTP/JSON API: one module for each subject, each with the endpoints that it serves (``ENDPOINTS``)."""

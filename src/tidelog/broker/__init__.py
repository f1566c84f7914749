"""The broker process: connections, dispatch, handlers, and ``app``, which wires everything."""

"""Spark runs this in the place of Python: it has ``fork_server`` fork a process, and waits for its end.

The command line is the server's socket and what Python would have been told. Standard input, output and
error, the environment and the working directory are passed on. Without a server, and for anything but
``-m MODULE``, Python itself runs. It is started a dozen times in a run, and so loads next to nothing.
"""

import _socket
import marshal
import os
import sys


def main() -> None:
    """Get a process forked, or be it."""
    path, *arguments = sys.argv[1:]
    if arguments[:1] == ["-m"]:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
        try:
            connection.connect(path)
            order = marshal.dumps((arguments[1:], dict(os.environ), os.getcwd()))  # noqa: PTH109
            streams = b"".join([number.to_bytes(4, sys.byteorder) for number in (0, 1, 2)])
            rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)]
            connection.sendmsg([len(order).to_bytes(4, "big")], rights)
            connection.sendall(order)
        except OSError:
            connection.close()
        else:
            said = connection.recv(1)
            os._exit(said[0] if said else 1)
    os.execv(sys.executable, [sys.executable, *arguments])


if __name__ == "__main__":
    main()

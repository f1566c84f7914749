"""Run a real Cassandra for the pipelines: one node on loopback, its jars from Maven Central, until Ctrl-C.

Needs Java 11 or 17 and Maven. The jars are fetched once into .compat/, the data stays in --directory. With a
command behind `--`, in which {} stands for the contact points, the node runs as long as the command does:

    python scripts/run_cassandra.py --port 0 -- tidelog demo --cassandra {}
"""

from __future__ import annotations

import argparse
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from foreign import toolchain  # noqa: E402
from foreign.cassandra import Cassandra  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="run_cassandra.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--port", type=int, default=9042, help="where clients connect (default: 9042; 0: any that is free)"
    )
    parser.add_argument(
        "--directory",
        type=Path,
        default=ROOT / "data" / "cassandra",
        help="where it keeps its data (default: data/cassandra)",
    )
    parser.add_argument("--heap", default="512m", help="the heap of its Java (default: 512m)")
    parser.add_argument("--fresh", action="store_true", help="begin with an empty --directory")
    parser.add_argument("command", nargs="*", help="run this, and end with it")
    arguments = parser.parse_args()
    if arguments.port and is_taken(arguments.port):
        print(f"Cassandra cannot run: port {arguments.port} is taken, choose another --port", file=sys.stderr)
        return 1
    if arguments.fresh and not emptied(arguments.directory):
        return 1
    node = Cassandra(arguments.directory, arguments.port or None, arguments.heap)
    # SIGTERM ends it as Ctrl-C does, and takes the node along.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        print(
            "Fetching jars where they are missing and starting Cassandra; the first time takes minutes …",
            flush=True,
        )
        node.start()
        print(f"Cassandra answers at {node.contact_points}; its messages are in {node.output}.")
        if arguments.command:
            sys.stdout.flush()
            return run_with(node, arguments.command)
        print(f"Try: tidelog pipeline run collect --cassandra {node.contact_points}")
        print("Ctrl-C stops it.", flush=True)
        return node.wait()
    except toolchain.Missing as failure:
        print(f"Cassandra cannot run: {failure}", file=sys.stderr)
        return 1
    except RuntimeError as failure:
        first, *_ = str(failure).splitlines()
        print(f"{first.rstrip(':')}; its messages are in {node.output}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0
    finally:
        node.stop()


def emptied(directory: Path) -> bool:
    """Remove what an earlier node has left; nothing else."""
    if directory.exists() and any(directory.iterdir()):
        if not (directory / "cassandra.yaml").exists():
            print(f"--fresh: {directory} holds files that are not Cassandra's", file=sys.stderr)
            return False
        shutil.rmtree(directory)
    return True


def run_with(node: Cassandra, command: list[str]) -> int:
    """Run a command on the node; returns its exit code. Ctrl-C reaches it from the terminal by itself."""
    process: subprocess.Popen[bytes] | None = None

    def end(*_: object) -> None:
        if process is not None:
            process.terminate()

    signal.signal(signal.SIGINT, lambda *_: None)
    signal.signal(signal.SIGTERM, end)
    process = subprocess.Popen([word.replace("{}", node.contact_points) for word in command])
    code = process.wait()
    print("Stopping Cassandra …", flush=True)
    return code


def is_taken(port: int) -> bool:
    with socket.socket() as probe:
        # As Cassandra does: connections of an earlier run that are still being closed do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())

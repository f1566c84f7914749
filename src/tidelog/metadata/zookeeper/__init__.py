"""The metadata store of a cluster: ZooKeeper, through kazoo."""

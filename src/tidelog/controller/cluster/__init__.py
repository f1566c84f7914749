"""The controller of a cluster: elected through ZooKeeper, it decides who leads and tells the brokers."""

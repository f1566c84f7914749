"""What our own tests run against: brokers to kill, raw requests, a clock moved by hand, disks that fail."""

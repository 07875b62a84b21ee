"""What ``roseinfer serve`` shows while it starts."""

"""The network client: the calls of the embedded broker, over the native protocol; docs/client.md explains it."""

"""The native protocol: JSON or bincode, over WebSocket or TCP. Sessions without sockets; docs/protocols/native.md explains it."""

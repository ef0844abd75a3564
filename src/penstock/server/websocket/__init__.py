"""WebSocket: frames by RFC 6455, compression by RFC 7692, and connections that carry sessions over them."""

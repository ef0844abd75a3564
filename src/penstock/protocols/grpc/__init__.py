"""gRPC: what the calls of the service `penstock.v1.Broker` mean to the engine, without sockets."""
